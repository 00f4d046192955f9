"""VocabGen: learns a vocabulary from documents."""

from __future__ import annotations

import os

from tfx.types import channel, standard_artifacts

from components.artifacts import Vocabulary
from components.corpus_gen.inputs import InputFile, fingerprint
from components.stage import Stage
from components.vocab_gen.executor import Executor
from components.vocab_gen.files import MERGES_FILE
from components.vocab_gen.settings import VocabularySettings


class VocabGen(
    Stage,
    executor=Executor,
    inputs={"documents": standard_artifacts.Examples},
    parameters={"vocab_size": int, "settings": str, "given": str, "code": str},
    outputs={"vocabulary": Vocabulary},
):
    """Learns a `vocabulary` of `vocab_size` tokens from the train split of `documents`, or imports or extends one."""

    def __init__(
        self,
        documents: channel.BaseChannel,
        vocab_size: int,
        settings: VocabularySettings,
        given: InputFile | None = None,
    ):
        files = [given, *_merges_beside(given)] if given and settings.algorithm == "byte_bpe" else [given]
        content = given and {"path": given.path, "fingerprint": fingerprint([file for file in files if file])}
        super().__init__(documents, vocab_size, settings, content)


def _merges_beside(vocabulary: InputFile) -> list[InputFile]:
    """The merges of a byte-level BPE, which are read with it; that the file is missing, the reader reports."""
    path = os.path.join(os.path.dirname(vocabulary.path), MERGES_FILE)
    return [InputFile(path, os.path.getsize(path))] if os.path.exists(path) else []
