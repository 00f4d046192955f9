"""How a vocabulary is learned."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class VocabularySettings:
    """How a WordPiece vocabulary is learned.

    Attributes:
        lower_case: lower-case and strip accents (the original's `do_lower_case`).
        min_word_count: words seen less often are not learned from; bounds memory on a large corpus.
        max_alphabet: how many distinct characters get a piece, the most frequent first; words with others are
            not learned from.
    """

    lower_case: bool = True
    min_word_count: int = 2
    max_alphabet: int = 1000

    def __post_init__(self) -> None:
        for name in ("min_word_count", "max_alphabet"):
            if getattr(self, name) < 1:
                raise ValueError(f"vocabulary.{name} is {getattr(self, name)}; it must be at least 1")
