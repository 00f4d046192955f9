"""How a vocabulary is learned."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class VocabularySettings:
    """How a vocabulary is learned, and text is cut by it.

    Attributes:
        algorithm: `wordpiece`: BERT's; `byte_bpe`: byte-level BPE, RoBERTa's; it keeps case and has no unknown token.
        lower_case: lower-case and strip accents (the original's `do_lower_case`); not of `byte_bpe`.
        min_word_count: words seen less often are not learned from; bounds memory on a large corpus.
        character_coverage: share of the characters of the text that the alphabet covers: the most frequent ones, as
            many as it takes (a few hundred of English, thousands of Chinese). A word with another is [UNK], and is not
            learned from. Not of `byte_bpe`, whose alphabet is the 256 bytes.
    """

    algorithm: Literal["wordpiece", "byte_bpe"] = "wordpiece"
    lower_case: bool = True
    min_word_count: int = 2
    character_coverage: float = 0.9999

    def __post_init__(self) -> None:
        if self.min_word_count < 1:
            raise ValueError(f"vocabulary.min_word_count is {self.min_word_count}; it must be at least 1")
        if not 0.0 < self.character_coverage <= 1.0:
            raise ValueError(f"vocabulary.character_coverage is {self.character_coverage}; it must be in (0, 1]")
