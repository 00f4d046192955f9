"""How text becomes documents."""

from __future__ import annotations

import dataclasses
from typing import Literal

from components.corpus_gen.languages import parse_languages


@dataclasses.dataclass(frozen=True)
class CleaningSettings:
    """What is mended in documents, and which are dropped; `corpus.json` counts each.

    Attributes:
        unicode_normalization: a Unicode normal form that the text is brought into.
        min_characters: documents with fewer are dropped.
        max_symbol_fraction: documents of which a larger share is neither letter, mark, number nor blank are dropped.
        languages: ISO 639-1 codes, separated by commas: documents in other languages are dropped; empty: none are.
        min_language_fraction: the share of a document that the detector must find to be in them; what it is not
            sure of counts as other languages.
        exact_duplicates: whether a document that occurs again is dropped.
        near_duplicates: whether a document that nearly equals another one is dropped (MinHash LSH).
        near_duplicate_similarity: Jaccard similarity of the shingles from which on two documents are near duplicates.
        shingle_words: words of a shingle; the set of its shingles is what a document is compared by.
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
        # The detector leaves some hundredths open: 1 would drop everything.
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
class CorpusSettings:
    """How text files become documents.

    Attributes:
        format: how documents lie in files; `auto`: each file's name and content decide.
        documents: in plain text, `blank_lines`: documents are separated by blank lines; `files`: each file is one.
        segments: `sentences`: a document's lines are joined and split into sentences; `lines`: each line is one.
        text_field: JSON key, column or tf.Example feature that holds the text, in formats that have such.
        language: ISO 639 code; decides abbreviations and full stops of the sentence splitter.
        invalid_utf8: a document with bytes that are not UTF-8 is kept with U+FFFD in their place (`replace`; the
            tokenizer drops it), dropped (`drop`), or stops the run (`fail`).
        max_document_characters: longer documents are cut into several, at a line end or blank if there is one.
        eval_fraction: share of the documents, chosen by a hash of their content, that is held out.
        bucket_bytes: text a documents shard holds on average: what one worker has in memory at a time.
        cleaning: what is mended and dropped.
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
    cleaning: CleaningSettings = dataclasses.field(default_factory=CleaningSettings)

    def __post_init__(self) -> None:
        if not 0.0 < self.eval_fraction < 1.0:
            raise ValueError(f"corpus.eval_fraction is {self.eval_fraction}; it must be between 0 and 1")
        for name in ("bucket_bytes", "max_document_characters"):
            if getattr(self, name) < 1:
                raise ValueError(f"corpus.{name} is {getattr(self, name)}; it must be at least 1")
