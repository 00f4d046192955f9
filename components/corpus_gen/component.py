"""CorpusGen: splits text files into documents."""

from __future__ import annotations

from tfx.types import standard_artifacts

from components.corpus_gen.executor import Executor
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

    With `earlier`, documents of another run, only what neither that run nor those before it have read. `inputs` is the
    path of the files' list, and `fingerprint` their hash (`components.corpus_gen.inputs.InputList`).
    """
