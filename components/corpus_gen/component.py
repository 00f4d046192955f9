"""CorpusGen: splits text files into documents."""

from __future__ import annotations

from collections.abc import Sequence

from tfx.types import channel, standard_artifacts

from components.corpus_gen.executor import Executor
from components.corpus_gen.inputs import InputFile, fingerprint, write_input_list
from components.corpus_gen.settings import CorpusSettings
from components.stage import Stage


class CorpusGen(
    Stage,
    executor=Executor,
    inputs={"earlier": standard_artifacts.Examples},
    optional=("earlier",),
    parameters={"inputs": str, "fingerprint": str, "settings": str, "code": str},
    outputs={"documents": standard_artifacts.Examples},
):
    """Reads text files into `documents` (splits `train` and `eval` by a hash of the document).

    With `earlier`, documents of another run, only what neither that run nor those before it have read.
    """

    def __init__(
        self,
        inputs: Sequence[InputFile],
        settings: CorpusSettings,
        list_dir: str,
        earlier: channel.BaseChannel | None = None,
    ):
        """Write the list of the inputs to `list_dir`, which the executor must be able to read.

        The list for a large corpus exceeds ML Metadata's limit for a property (16 MB on MySQL).
        """
        identity = fingerprint(inputs)
        listed = write_input_list(inputs, list_dir, identity)
        super().__init__(inputs=listed, fingerprint=identity, settings=settings, earlier=earlier)
