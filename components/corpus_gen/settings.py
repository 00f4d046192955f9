"""Settings for making documents from text."""

from __future__ import annotations

import dataclasses
from typing import Literal

from components.corpus_gen.languages import parse_languages

# An `eval_fraction` that holds out every document, and one that holds out none (but for one id in 2^32): ids are
# compared with it as 32-bit numbers.
ALL_HELD_OUT, NONE_HELD_OUT = 1.0 - 2.0**-40, 2.0**-40


@dataclasses.dataclass(frozen=True)
class CleaningSettings:
    """Settings for cleaning and filtering documents; `corpus.json` has the counts.

    Attributes:
        unicode_normalization: Unicode normal form of the text.
        min_characters: documents with fewer characters are dropped.
        max_symbol_fraction: limit for the share of characters that are not letters, marks, numbers or blanks.
        languages: ISO 639-1 codes, separated by commas: documents in other languages are dropped; empty: keep all.
        min_language_fraction: minimum share of a document detected as one of these languages; text of uncertain
            language counts as another one.
        exact_duplicates: whether repeated documents are dropped.
        near_duplicates: whether documents very similar to another one are dropped (MinHash LSH).
        near_duplicate_similarity: minimum Jaccard similarity of the shingles of near duplicates.
        shingle_words: number of words of a shingle; documents are compared by their sets of shingles.
    """

    unicode_normalization: Literal["none", "NFC", "NFKC"] = "none"
    min_characters: int = 0
    max_symbol_fraction: float = 1.0
    languages: str = ""
    min_language_fraction: float = 0.5
    exact_duplicates: bool = True
    near_duplicates: bool = False
    near_duplicate_similarity: float = 0.8
    shingle_words: int = 5

    def __post_init__(self) -> None:
        # Some hundredths of a text always remain undetected: 1 would drop everything.
        for name, largest in (("max_symbol_fraction", 1), ("min_language_fraction", 0.95)):
            if not 0 <= getattr(self, name) <= largest:
                raise ValueError(f"corpus.cleaning.{name} is {getattr(self, name)}; it must be in [0, {largest}]")
        try:
            parse_languages(self.languages)
        except ValueError as error:
            raise ValueError(f"corpus.cleaning.languages: {error}") from error
        if not 0.0 < self.near_duplicate_similarity < 1.0:
            raise ValueError(
                "corpus.cleaning.near_duplicate_similarity is "
                f"{self.near_duplicate_similarity}; it must be between 0 and 1"
            )
        if self.shingle_words < 1:
            raise ValueError(f"corpus.cleaning.shingle_words is {self.shingle_words}; it must be at least 1")
        if self.min_characters < 0:
            raise ValueError(f"corpus.cleaning.min_characters is {self.min_characters}; it must be at least 0")


@dataclasses.dataclass(frozen=True)
class PassageSettings:
    """Settings for dropping passages that many documents have.

    Attributes:
        unit: a passage consists of lines or sentences; `none`: keep all.
        window: number of consecutive lines or sentences of a passage.
        min_count: number of documents with a passage from which on it is repeated.
        keep: number of documents in which a repeated passage stays.
        min_characters: a document that becomes shorter by it is dropped.
    """

    unit: Literal["none", "lines", "sentences"] = "none"
    window: int = 3
    min_count: int = 2
    keep: int = 1
    min_characters: int = 100

    def __post_init__(self) -> None:
        for name, smallest in (("window", 1), ("min_count", 2), ("keep", 0), ("min_characters", 1)):
            if getattr(self, name) < smallest:
                raise ValueError(f"corpus.passages.{name} is {getattr(self, name)}; it must be at least {smallest}")


@dataclasses.dataclass(frozen=True)
class CorpusSettings:
    """Settings for making documents from text files.

    Attributes:
        format: format of the files; `auto`: by each file's name and content.
        documents: in plain text, `blank_lines`: documents are separated by blank lines; `files`: one per file.
        segments: `sentences`: lines of a document are joined and split into sentences; `lines`: one per line.
        text_field: JSON key, column or tf.Example feature that contains the text, where applicable.
        language: ISO 639 code for the sentence splitter's rules on abbreviations and full stops.
        invalid_utf8: for documents with bytes that are not UTF-8: replace these by U+FFFD (`replace`; the tokenizer
            removes it), drop the document (`drop`), or stop the run (`fail`).
        max_document_characters: longer documents are split, at a line end or blank if there is one.
        eval_fraction: share of documents to hold out, chosen by a hash of their content.
        bucket_bytes: average size of the text in a shard of documents, which a worker holds in memory.
        reread: with `--init latest`: read all documents, not only those that the model has not read.
        cleaning: cleaning and filters.
        passages: passages that many documents have are dropped.
    """

    format: Literal["auto", "text", "jsonl", "wikiextractor", "csv", "tsv", "parquet", "tfrecord"] = "auto"
    documents: Literal["blank_lines", "files"] = "blank_lines"
    segments: Literal["sentences", "lines"] = "sentences"
    text_field: str = "text"
    language: str = "en"
    invalid_utf8: Literal["replace", "drop", "fail"] = "replace"
    max_document_characters: int = 1_000_000
    eval_fraction: float = 0.05
    bucket_bytes: int = 4 << 20
    reread: bool = False
    cleaning: CleaningSettings = dataclasses.field(default_factory=CleaningSettings)
    passages: PassageSettings = dataclasses.field(default_factory=PassageSettings)

    def __post_init__(self) -> None:
        if not 0.0 < self.eval_fraction < 1.0:
            raise ValueError(f"corpus.eval_fraction is {self.eval_fraction}; it must be between 0 and 1")
        for name in ("bucket_bytes", "max_document_characters"):
            if getattr(self, name) < 1:
                raise ValueError(f"corpus.{name} is {getattr(self, name)}; it must be at least 1")
