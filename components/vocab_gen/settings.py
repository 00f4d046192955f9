"""Settings for learning a vocabulary."""

import dataclasses
from typing import Literal

from bert_keras.errors import Count, PositiveShare, Settings, Size
from bert_keras.tokenizers.unicode_tables import Normalization


@dataclasses.dataclass(frozen=True)
class VocabularySettings(Settings, section="vocabulary"):
    """Settings for learning a vocabulary and tokenizing with it.

    Attributes:
        algorithm: `wordpiece`: BERT's; `byte_bpe`: RoBERTa's byte-level BPE, which is cased and has no unknown token;
            `sentencepiece`: ALBERT's unigram model, which takes text in Unicode's form NFKC.
        lower_case: lower-case (the original's `do_lower_case`); not for `byte_bpe`.
        strip_accents: strip accents and other marks: möchte becomes mochte, and a Korean syllable its letters. None:
            as `lower_case`, the original's way. German and Korean vocabularies are made with `lower_case=true` or
            `false` and `strip_accents=false`. Not for `byte_bpe`.
        tokenize_chinese_chars: each ideograph is a word; false: words of Japanese or Chinese are those between blanks,
            for text that was segmented before. Only for `wordpiece`.
        min_word_count: minimum count of words to learn from; for a text of more than 1e8 times as many words it is
            raised, and vocab_spec.json contains the value. Only for `wordpiece`; the others learn from all words:
            without blanks a clause is a word, and most occur once.
        character_coverage: share of the characters of the text that the alphabet covers: the most frequent ones, as
            many as necessary (a few hundred for English, thousands for Chinese). A word with any other character is
            [UNK], and is not learned from; of `sentencepiece` the character alone is. Not for `byte_bpe`, whose
            alphabet is the 256 bytes.
        extend: number of words to add to a given vocabulary (an initial model's, or a file): the words that save most
            tokens. They take the places of `[unused0]`, `[unused1]`, ... first; the others are appended. Only for
            `wordpiece`: a new merge or piece would change the tokens of other words.
    """

    algorithm: Literal["wordpiece", "byte_bpe", "sentencepiece"] = "wordpiece"
    lower_case: bool = True
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    min_word_count: Count = 2
    character_coverage: PositiveShare = 0.9999
    extend: Size = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.extend and self.algorithm != "wordpiece":
            raise ValueError(
                f"vocabulary.extend adds words to a vocabulary of word pieces only; {self.algorithm} cannot take them"
            )

    @property
    def normalization(self) -> Normalization:
        """The rules of a WordPiece vocabulary."""
        return Normalization(self.lower_case, self.strip_accents, self.tokenize_chinese_chars)
