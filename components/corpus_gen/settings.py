"""Settings for making documents from text."""

import dataclasses
import re
from typing import Annotated, ClassVar, Literal

from bert_keras.errors import Count, ProperShare, Rule, Settings, Size, at_least
from components.corpus_gen.languages import parse_languages, parse_regions

# An `eval_fraction` that holds out every document: ids are compared with it as 32-bit numbers.
ALL_HELD_OUT = 1.0 - 2.0**-40


@dataclasses.dataclass(frozen=True)
class CleaningSettings(Settings, section="corpus.cleaning"):
    """Settings for cleaning and filtering documents; `corpus.json` has the counts.

    Attributes:
        unicode_normalization: Unicode normal form of the text.
        min_characters: documents with fewer characters are dropped.
        languages: ISO 639-1 codes, separated by commas: documents in other languages are dropped; empty: keep all.
        min_language_fraction: minimum share of a document detected as one of these languages; text of uncertain
            language counts as another one.
        near_duplicates: whether documents very similar to another one are dropped (MinHash LSH).
        near_duplicate_similarity: minimum Jaccard similarity of the shingles of near duplicates.
    """

    # Words of a shingle, as in FineWeb; no setting. Documents are compared by their sets of shingles.
    shingle_words: ClassVar[int] = 5

    unicode_normalization: Literal["none", "NFC", "NFKC"] = "none"
    min_characters: Size = 0
    languages: str = ""
    # Some hundredths of a text always remain undetected: 1 would drop everything.
    min_language_fraction: Annotated[float, Rule(lambda share: 0 <= share <= 0.95, "in [0, 0.95]")] = 0.5
    near_duplicates: bool = False
    near_duplicate_similarity: ProperShare = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            parse_languages(self.languages)
        except ValueError as error:
            raise ValueError(f"corpus.cleaning.languages: {error}") from error


# C4's rules that can be left out one by one, in the order of `C4QualityFilter` in datatrove.
C4_RULES = ("citations", "punctuation", "lorem_ipsum", "javascript", "curly_bracket", "policy")
_Limit = Annotated[float, at_least(0)]
_Limits = Annotated[tuple[float, ...], Rule(lambda limits: min(limits, default=0) >= 0, "at least 0")]
# Languages without blanks between words.
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "dz"})


@dataclasses.dataclass(frozen=True)
class QualitySettings(Settings, section="corpus.quality"):
    """Settings for the quality rules of published corpora, off by default; thresholds are the published ones.

    Attributes:
        gopher_repetition: whether Gopher's rules on repetition drop documents.
        gopher: whether Gopher's rules on words, symbols and lines drop documents.
        c4: whether C4's rules remove lines and drop documents.
        fineweb: whether FineWeb's rules on lines drop documents.
        repetition_max_top_ngrams: limits for the share of characters in the most frequent sequence of 2, 3, 4 words.
        repetition_max_repeated_ngrams: limits for the share of characters in sequences of 5 to 10 words that occur
            before.
        gopher_min_words: minimum number of words; punctuation does not count.
        gopher_min_word_length: minimum of the words' mean length.
        gopher_max_word_length: maximum of the words' mean length.
        gopher_min_alphabetic_words: minimum share of words and punctuation marks that have a letter.
        gopher_min_stop_words: minimum number of different stop words.
        gopher_stop_words: the stop words, in lower case.
        c4_rules: rules of C4 that apply.
        c4_min_sentences: minimum number of sentences in the lines that remain.
    """

    # Thresholds of the papers and of datatrove's defaults; no settings: with another value it is another rule.
    repetition_max_lines: ClassVar[float] = 0.3
    repetition_max_line_characters: ClassVar[float] = 0.2
    gopher_max_words: ClassVar[int] = 100_000
    gopher_max_symbols: ClassVar[float] = 0.1
    gopher_max_bullet_lines: ClassVar[float] = 0.9
    gopher_max_ellipsis_lines: ClassVar[float] = 0.3
    c4_min_line_words: ClassVar[int] = 3
    c4_max_word_length: ClassVar[int] = 1000
    fineweb_min_punctuated_lines: ClassVar[float] = 0.12
    fineweb_max_short_lines: ClassVar[float] = 0.67
    fineweb_short_line: ClassVar[int] = 30
    fineweb_max_repeated_characters: ClassVar[float] = 0.01
    fineweb_max_lines_per_word: ClassVar[float] = 0.3

    gopher_repetition: bool = False
    gopher: bool = False
    c4: bool = False
    fineweb: bool = False
    repetition_max_top_ngrams: _Limits = (0.2, 0.18, 0.16)
    repetition_max_repeated_ngrams: _Limits = (0.15, 0.14, 0.13, 0.12, 0.11, 0.1)
    gopher_min_words: Size = 50
    gopher_min_word_length: _Limit = 3.0
    gopher_max_word_length: _Limit = 10.0
    gopher_min_alphabetic_words: _Limit = 0.8
    gopher_min_stop_words: Size = 2
    gopher_stop_words: tuple[str, ...] = ("the", "be", "to", "of", "and", "that", "have", "with")
    c4_rules: tuple[str, ...] = C4_RULES
    c4_min_sentences: Size = 5

    @property
    def on(self) -> bool:
        """Return whether any rule applies."""
        return self.gopher_repetition or self.gopher or self.c4 or self.fineweb

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, expected, sizes in (
            ("repetition_max_top_ngrams", 3, "2, 3, 4"),
            ("repetition_max_repeated_ngrams", 6, "5 to 10"),
        ):
            if len(getattr(self, name)) != expected:
                raise ValueError(
                    f"corpus.quality.{name} has {len(getattr(self, name))} limits; "
                    f"it must have {expected}, for sequences of {sizes} words"
                )
        if unknown := ", ".join(sorted(set(self.c4_rules) - set(C4_RULES))):
            raise ValueError(f"corpus.quality.c4_rules has {unknown}; choose from {', '.join(C4_RULES)}")


@dataclasses.dataclass(frozen=True)
class PassageSettings(Settings, section="corpus.passages"):
    """Settings for dropping passages that many documents have.

    Attributes:
        unit: a passage consists of lines or sentences; `none`: keep all.
        window: number of consecutive lines or sentences of a passage.
        min_count: number of documents with a passage from which on it is repeated.
        keep: number of documents in which a repeated passage stays.
        min_characters: a document that becomes shorter by it is dropped.
    """

    unit: Literal["none", "lines", "sentences"] = "none"
    window: Count = 3
    min_count: Annotated[int, at_least(2)] = 2
    keep: Size = 1
    min_characters: Count = 100


@dataclasses.dataclass(frozen=True)
class LeakSettings(Settings, section="corpus.leaks"):
    """Settings for finding texts of evaluation sets in the corpus (`corpus.decontaminate`).

    Attributes:
        ngram_words: a run of so many words of a text is a leak (of a language without blanks: letters).
        changed_words: number of words that may differ where a text of `ngram_words` words or more is found as a whole;
            of a shorter text proportionally fewer.
        min_words: texts of fewer words are not looked for: they are often ordinary phrases.
    """

    ngram_words: Annotated[int, at_least(3)] = 13
    changed_words: Size = 2
    min_words: Annotated[int, at_least(3)] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        # So that each text has, beside its changed words, a run of three words that finds it.
        if self.changed_words > (most := self.ngram_words // 3 - 1):
            raise ValueError(
                f"corpus.leaks.changed_words is {self.changed_words}; with corpus.leaks.ngram_words="
                f"{self.ngram_words} it must be at most {most}"
            )


@dataclasses.dataclass(frozen=True)
class PersonalDataSettings:
    """Settings for replacing personal data in documents; `corpus.json` has the counts.

    Attributes:
        email: whether e-mail addresses are replaced by [email].
        ip: whether public IP addresses, of version 4 and 6, are replaced by [ip].
        phone: whether phone numbers that begin with + and a country's code are replaced by [phone].
        phone_regions: codes of countries (ISO 3166-1, two letters), separated by commas: numbers as they are dialled
            within them are phone numbers too.
        card: whether numbers of payment cards are replaced by [card].
    """

    email: bool = False
    ip: bool = False
    phone: bool = False
    phone_regions: str = ""
    card: bool = False

    def __post_init__(self) -> None:
        parse_regions(self.phone_regions)


@dataclasses.dataclass(frozen=True)
class CorpusSettings(Settings, section="corpus"):
    """Settings for making documents from text files.

    Attributes:
        format: format of the files; `auto`: by each file's name and content.
        documents: in plain text, `blank_lines`: documents are separated by blank lines; `files`: one per file.
        segments: `sentences`: lines of a document are joined and split into sentences; `lines`: one per line.
        text_field: JSON key, column or tf.Example feature that contains the text, where applicable.
        language: ISO 639 code for the sentence splitter's rules on abbreviations and full stops.
        max_document_characters: longer documents are split, at a line end or blank if there is one.
        eval_fraction: share of documents to hold out, chosen by a hash of their content.
        bucket_bytes: average size of the text in a shard of documents, which a worker holds in memory.
        reread: with `--init latest`: read all documents, not only those that the model has not read.
        source_power: with sources (`--corpus NAME=GLOB`): training and vocabulary read a source of n sentences as if it
            had n to this power: 0.3 as XLM-R, 0.7 as multilingual BERT; 1: all text alike; 0: all sources alike.
            `training.source_weights`, if given, decides for the training.
        licence: licence of the text, for its card (`corpus_card.md`).
        keep_dropped: whether dropped documents are written as JSON lines, with rule and source, to the folder `dropped`
            beside the documents.
        count_languages: whether `corpus.json` counts documents by language, too; it takes 27 us a document.
        cleaning: cleaning and filters.
        quality: quality rules of published corpora.
        passages: passages that many documents have are dropped.
        decontaminate: evaluation files, separated by commas, whose texts the corpus must not have: files, folders and
            globs in any format of `bert-tfx finetune`; empty: none. Workers get the table that the launcher makes of
            them (`components.task_example_gen.evaluation_sets`).
        leaks: how these texts are found, and what is dropped.
        personal_data: personal data to replace.
    """

    format: Literal["auto", "text", "jsonl", "wikiextractor", "csv", "tsv", "parquet", "tfrecord"] = "auto"
    documents: Literal["blank_lines", "files"] = "blank_lines"
    segments: Literal["sentences", "lines"] = "sentences"
    text_field: str = "text"
    language: Annotated[
        str, Rule(re.compile("[a-z]{2,3}(-[a-z-]+)?").fullmatch, "a code in small letters, such as en, de or pt-br")
    ] = "en"
    max_document_characters: Count = 1_000_000
    eval_fraction: ProperShare = 0.05
    bucket_bytes: Count = 4 << 20
    reread: bool = False
    source_power: Annotated[float, Rule(lambda power: 0 <= power <= 1, "from 0 to 1")] = 1.0
    licence: str = ""
    keep_dropped: bool = False
    count_languages: bool = False
    cleaning: CleaningSettings = dataclasses.field(default_factory=CleaningSettings)
    quality: QualitySettings = dataclasses.field(default_factory=QualitySettings)
    passages: PassageSettings = dataclasses.field(default_factory=PassageSettings)
    decontaminate: tuple[str, ...] = ()
    leaks: LeakSettings = dataclasses.field(default_factory=LeakSettings)
    personal_data: PersonalDataSettings = dataclasses.field(default_factory=PersonalDataSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quality.on and self.language in UNSPACED_LANGUAGES:
            raise ValueError(
                f"corpus.quality counts words between blanks, and corpus.language is {self.language}: "
                "leave corpus.quality off"
            )
        english = self.quality.gopher_stop_words == QualitySettings.gopher_stop_words
        if self.quality.gopher and self.quality.gopher_min_stop_words and english and self.language != "en":
            raise ValueError(
                f"corpus.quality.gopher_stop_words are English, and corpus.language is {self.language}: "
                "--set corpus.quality.gopher_stop_words=WORD,WORD,... or corpus.quality.gopher_min_stop_words=0"
            )
