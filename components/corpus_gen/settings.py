"""How text becomes documents."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class CorpusSettings:
    """How text files become documents.

    Attributes:
        documents: `blank_lines`: documents are separated by blank lines; `files`: each file is one document.
        segments: `sentences`: a document's lines are joined and split into sentences; `lines`: each line is one.
        language: ISO 639 code; decides abbreviations and full stops of the sentence splitter.
        eval_fraction: share of the documents, chosen by a hash of their content, that is held out.
        bucket_bytes: text a documents shard holds on average: what one worker has in memory at a time.
    """

    documents: Literal["blank_lines", "files"] = "blank_lines"
    segments: Literal["sentences", "lines"] = "sentences"
    language: str = "en"
    eval_fraction: float = 0.05
    bucket_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        if not 0.0 < self.eval_fraction < 1.0:
            raise ValueError(f"corpus.eval_fraction is {self.eval_fraction}; it must be between 0 and 1")
        if self.bucket_bytes < 1:
            raise ValueError(f"corpus.bucket_bytes is {self.bucket_bytes}; it must be at least 1")
