"""BERT's tokenization outside TensorFlow: google-research/bert's FullTokenizer, vectorized.

The rules are frozen tables (`unicode_tables`), which `wordpiece_graph.GraphTokenizer` shares. Texts are normalized and
split into words (`normalize`); each distinct word is cut into wordpieces once.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, TextIO

import numpy as np

from bert_keras.errors import InputError
from bert_keras.tokenizers import unicode_tables as ut
from bert_keras.tokenizers import wordpiece_offsets
from bert_keras.tokenizers.byte_bpe import BPE_FIELDS, ByteBpeTokenizer
from bert_keras.tokenizers.normalize import chunks_of, split_chunk
from bert_keras.tokenizers.protocol import (
    BYTE_BPE,
    FORMATS,
    SENTENCEPIECE,
    WORDPIECE,
    EncodedTexts,
    SequenceFormat,
    Tokenizer,
    format_of,
    stored_format,
)
from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer
from bert_keras.tokenizers.wordpiece_offsets import SUFFIX_INDICATOR as SUFFIX_INDICATOR

# BERT's, in the order of a new vocabulary.
PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_CHARS_PER_WORD = 200  # characters after lower-casing, as in the original's WordpieceTokenizer

_CACHED_WORDS = 1 << 18
_READ_BYTES = 1 << 20


def load_vocabulary(path: str) -> list[str]:
    """Read the tokens of a vocabulary file, one per line, stripped like the original's `load_vocab`."""
    # Only "\n" ends a line there; Python's default also splits at a lone "\r".
    with open(path, encoding="utf-8-sig", newline="\n") as lines:
        return [line.strip() for line in lines]


def check_unique(vocabulary: Sequence[str]) -> dict[str, int]:
    """The ids of tokens; ValueError for a duplicate."""
    first_ids: dict[str, int] = {}
    for token_id, token in enumerate(vocabulary):
        if first_ids.setdefault(token, token_id) != token_id:
            raise ValueError(
                f"the vocabulary has the token {token!r} twice, as ids {first_ids[token]} and {token_id}; "
                "every token (line of vocab.txt, stripped) must be unique"
            )
    return first_ids


class _WordpieceCache(dict[str, tuple[int, ...]]):
    """Word -> ids of its wordpieces, filled on demand by greedy longest-match-first."""

    def __init__(self, vocabulary: Sequence[str], unk_id: int):
        super().__init__()
        self._initial = {token: i for i, token in enumerate(vocabulary)}
        self._suffix = {
            token.removeprefix(SUFFIX_INDICATOR): i
            for token, i in self._initial.items()
            if token.startswith(SUFFIX_INDICATOR)
        }
        self._longest = max(map(len, vocabulary))
        self._unknown = (unk_id,)

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self[word] = self._cut(word) if len(word) <= MAX_CHARS_PER_WORD else self._unknown
        return ids

    def _cut(self, word: str) -> tuple[int, ...]:
        ids: list[int] = []
        start, candidates = 0, self._initial
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                if (token_id := candidates.get(word[start:end])) is not None:
                    break
            else:
                return self._unknown
            ids.append(token_id)
            start, candidates = end, self._suffix
        return tuple(ids)


class BertTokenizer(Tokenizer):
    """google-research/bert's FullTokenizer, latest version, for str in memory.

    That version deletes only control and format characters (category Cc, Cf). The released models were
    trained before 2019-03-28, when it also deleted unassigned and private-use ones. Special tokens in a
    text are text: "[MASK]" becomes "[", "mask", "]", as in the original. A word without wordpieces, or with over 200
    characters, is one "[UNK]".

    Args:
        vocabulary: one token per id. ValueError for a duplicate and for a missing special token.
        lower_case: lower-case, and by default strip accents; with `further` the attributes of
            `unicode_tables.Normalization`. They must match how the vocabulary was made.
        format_: special tokens and pairs.
    """

    algorithm = WORDPIECE

    def __init__(
        self, vocabulary: Sequence[str], lower_case: bool, format_: SequenceFormat = FORMATS["bert"], **further: Any
    ):
        self._take_format(format_, check_unique(vocabulary))
        self.vocabulary = tuple(vocabulary)
        self.normalization = ut.Normalization(lower_case, **further)
        self._table = ut.fold_table(**self.normalization.fields)
        self._wordpieces = _WordpieceCache(self.vocabulary, self.unk_id)

    @classmethod
    def from_file(cls, path: str, lower_case: bool, **further: Any) -> "BertTokenizer":
        """Read a local vocab.txt; errors name the file."""
        try:
            return cls(load_vocabulary(path), lower_case, **further)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def __reduce__(self):
        # Beam ships this to every worker: leave out the cache and the tables.
        return functools.partial(BertTokenizer, format_=self.format, **self.normalization.fields), (self.vocabulary,)

    @functools.cached_property
    def is_suffix(self) -> np.ndarray:
        """Bool [V], by id: the token continues a word ("##")."""
        return np.array([token.startswith(SUFFIX_INDICATOR) for token in self.vocabulary])

    def encode(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """See `Tokenizer`; raises TypeError if one of `texts` is not a str."""
        ids, splits = [], [np.zeros(1, np.int64)]
        for chunk in chunks_of(texts):
            words, word_splits = split_chunk(chunk, self._table)
            chunk_ids, token_splits = self.wordpiece_ids(words)
            ids.append(chunk_ids)
            splits.append(splits[-1][-1] + token_splits[word_splits[1:]])
        return (ids[0] if len(ids) == 1 else np.concatenate([np.zeros(0, np.int32), *ids])), np.concatenate(splits)

    def encode_with_offsets(self, texts: Iterable[str]) -> EncodedTexts:
        """`encode(texts)` with the source characters of each token (`wordpiece_offsets`)."""
        return wordpiece_offsets.encode_with_offsets(self, texts)

    def wordpiece_ids(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids int32 of normalized words, and int64 [len(words) + 1] row splits."""
        ids_of_words = list(map(self._wordpieces.__getitem__, words))
        splits = np.fromiter(itertools.accumulate(map(len, ids_of_words), initial=0), np.int64, len(words) + 1)
        ids = np.fromiter(itertools.chain.from_iterable(ids_of_words), np.int32, splits[-1])
        if len(self._wordpieces) > _CACHED_WORDS:
            self._wordpieces.clear()
        return ids, splits


def tokenize_lines(tokenizer: BertTokenizer, lines: BinaryIO, output: TextIO) -> None:
    """Write the token ids of each line of a buffered file, separated by spaces; lines are batched as they arrive.

    Bytes that are not UTF-8 are dropped, as the original's `convert_to_unicode` does.
    """
    unfinished: list[bytes] = []  # parts of a line without its end
    while block := lines.read1(_READ_BYTES):  # type: ignore[attr-defined]
        *complete, remainder = block.split(b"\n")
        if complete:
            complete[0] = b"".join([*unfinished, complete[0]])
            unfinished = []
            _write_ids(tokenizer, complete, output)
            output.flush()
        unfinished.append(remainder)
    if last := b"".join(unfinished):
        _write_ids(tokenizer, [last], output)


def _write_ids(tokenizer: BertTokenizer, lines: list[bytes], output: TextIO) -> None:
    ids, splits = tokenizer.encode(line.decode("utf-8", "ignore") for line in lines)
    words = list(map(str, ids.tolist()))
    output.writelines(" ".join(words[start:end]) + "\n" for start, end in itertools.pairwise(splits.tolist()))


def make_tokenizer(
    vocabulary: Sequence[str], spec: Mapping[str, Any], merges: Sequence[tuple[str, str]] = ()
) -> BertTokenizer | ByteBpeTokenizer | SentencePieceTokenizer:
    """Make the tokenizer that `vocab_spec.json` describes; `merges`: for byte-level BPE."""
    format_ = stored_format(spec)
    if spec["algorithm"] == "byte_bpe":
        return ByteBpeTokenizer(vocabulary, merges, format_, **{n: spec[n] for n in BPE_FIELDS if n in spec})
    if spec["algorithm"] == "sentencepiece":
        return SentencePieceTokenizer(spec["model"], format_)
    return BertTokenizer(vocabulary, format_=format_, **ut.normalization_fields(spec))


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The parts of a tokenizer."""

    tokens: list[str]  # one for each id
    merges: list[tuple[str, str]] | None = None  # of byte-level BPE; None for others
    sentencepiece: bytes | None = None  # a SentencePiece model (`sentencepiece.model_with_ids`); None for others
    # Of word pieces: fields of `unicode_tables.Normalization`, as far as the files say them; without `lower_case` if
    # that is unknown.
    rules: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    format: SequenceFormat | None = None  # special tokens and pairs; None: as the special tokens among `tokens` say
    nfc: bool = False  # this and `added` of byte-level BPE: as in `ByteBpeTokenizer`
    added: tuple[str, ...] = ()

    @property
    def known_format(self) -> SequenceFormat:
        return self.format or format_of(self.algorithm, self.tokens)

    @property
    def algorithm(self) -> str:
        if self.sentencepiece is not None:
            return SENTENCEPIECE
        return WORDPIECE if self.merges is None else BYTE_BPE

    def tokenizer(self, directory: str, cased: bool | None = None) -> Tokenizer:
        """The tokenizer; InputError, naming `directory`, if the vocabulary is invalid, or its case unknown.

        `cased`: whether word pieces keep case; None: the files say it.
        """
        rules = dict(self.rules)
        if cased is not None:
            if rules.get("strip_accents") == rules.get("lower_case"):
                rules["strip_accents"] = None  # goes with the case
            rules["lower_case"] = not cased
        if self.algorithm == WORDPIECE and rules.get("lower_case") is None:
            raise InputError(
                f"{directory}: does not say whether its vocabulary is lower-cased: give --cased or --uncased"
            )
        further = {"model": self.sentencepiece, "format": self.known_format._asdict()}
        spec = {"algorithm": self.algorithm, **rules, **further, "nfc": self.nfc, "added": self.added}
        try:
            return make_tokenizer(self.tokens, spec, self.merges or ())
        except ValueError as error:
            raise InputError(f"{directory}: {error}") from error
