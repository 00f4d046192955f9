"""BERT's tokenization outside TensorFlow: google-research/bert's FullTokenizer, at array speed.

The rules come as frozen tables (`unicode_tables`), which `graph_tokenizer.GraphTokenizer` shares. Many
texts are laid out as one array of code points, rewritten by table look-ups, split at spaces, and each
distinct word is cut into pieces once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, TextIO

import numpy as np

from bert_keras import unicode_tables as ut
from bert_keras.byte_bpe import ByteBpeTokenizer
from bert_keras.tokenization import EncodedTexts

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SUFFIX_INDICATOR = "##"
MAX_CHARS_PER_WORD = 200  # characters after lower-casing, as in the original's WordpieceTokenizer

_CHUNK_CHARS = 1 << 18  # enough to make NumPy's overhead vanish, few enough to stay in the cache
_CACHED_WORDS = 1 << 18
_READ_BYTES = 1 << 20

# By kind: the replacement and the spaces around it.
_WIDTH = np.array([(k & ut.LENGTH_MASK) + (2 if k & ut.ISOLATED else 0) for k in range(256)], np.int64)


def load_vocabulary(path: str) -> list[str]:
    """Tokens of a vocabulary file, one a line, stripped like the original's `load_vocab`."""
    # Only "\n" ends a line there; by default Python ends one at a lone "\r" too.
    with open(path, encoding="utf-8", newline="\n") as lines:
        return [line.strip() for line in lines]


def check_vocabulary(vocabulary: Sequence[str]) -> None:
    """ValueError that names a duplicate or a missing special token."""
    first_ids: dict[str, int] = {}
    for token_id, token in enumerate(vocabulary):
        if first_ids.setdefault(token, token_id) != token_id:
            raise ValueError(
                f"the vocabulary has the token {token!r} twice, as ids {first_ids[token]} and {token_id}; "
                "every token (line of vocab.txt, stripped) must be there once"
            )
    missing = [token for token in SPECIAL_TOKENS if token not in first_ids]
    if missing:
        raise ValueError(
            f"the vocabulary of {len(vocabulary)} tokens lacks {', '.join(missing)}; "
            f"it needs all of {', '.join(SPECIAL_TOKENS)}, at any ids"
        )


def _final_sigma(code_points: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Code points with those capital sigmas made final that `str.lower` makes final.

    That is: a cased letter comes before, and none after, case-ignorable characters not counting. White
    space is neither, so looking at a whole text equals looking at its words, which is what the original
    does.
    """
    counted = np.flatnonzero((kind & ut.IGNORABLE) == 0)
    seen = kind[counted]
    cased = np.concatenate([[False], (seen & ut.CASED) != 0, [False]])
    final = ((seen & ut.SIGMA) != 0) & cased[:-2] & ~cased[2:]
    code_points = code_points.copy()
    code_points[counted[final]] = ut.FINAL_SIGMA
    return code_points


def _order_marks(output: np.ndarray, source: np.ndarray, kind: np.ndarray, table: ut.FoldTable) -> None:
    """Puts marks into NFD's canonical order, in place: stably by combining class between two starters.

    Their `source` goes with them. Marks of category Mn are gone from `output` already, which does not change the order
    of the others.
    """
    run = np.cumsum((kind & ut.STARTER) != 0)
    places = np.flatnonzero((kind & ut.MARK)[source])
    classes = (output[places, None] == table.marks) @ table.mark_classes
    moved = places[np.lexsort((classes, run[source[places]]))]
    output[places], source[places] = output[moved], source[moved]


class Folded(NamedTuple):
    """Code points [N] rewritten into words between spaces, M code points.

    Attributes:
        output: [M], of the type of the code points.
        ends: int64 [N], where each one's replacement ends.
        source: int64 [M], which code point each comes from (the spaces around a sign too); None if it was not asked
            for.
    """

    output: np.ndarray
    ends: np.ndarray
    source: np.ndarray | None


def fold(code_points: np.ndarray, table: ut.FoldTable, with_source: bool = False) -> Folded:
    """Rewrites code points [N] (uint8 if ASCII, else uint32) into words between spaces."""
    kind = table.kind[code_points]
    bits = np.bitwise_or.reduce(kind)
    if bits & ut.SIGMA:
        code_points = _final_sigma(code_points, kind)
    width = _WIDTH[kind]
    ends = np.cumsum(width)
    first = table.replacement[:, 0][code_points].astype(code_points.dtype, copy=False)
    output = np.repeat(first, width)

    isolated_ends = ends[(kind & ut.ISOLATED) != 0]
    output[isolated_ends - 3] = ut.SPACE
    output[isolated_ends - 1] = ut.SPACE
    for place in range(1, ut.MAX_LENGTH):
        longer = np.flatnonzero((kind & ut.LENGTH_MASK) > place)
        starts = ends[longer] - width[longer]
        output[starts + place] = table.replacement[code_points[longer], place]
    source = np.repeat(np.arange(len(kind)), width) if with_source or bits & ut.MARK else None
    if bits & ut.MARK:
        _order_marks(output, source, kind, table)  # type: ignore[arg-type]
    return Folded(output, ends, source)


def lay_out(texts: Sequence[str]) -> tuple[np.ndarray, str]:
    """Code points of all texts, a line end after each, uint8 if all are ASCII, else uint32; and their encoding.

    No word and no rule reaches across a line end.
    """
    joined = "\n".join([*texts, ""])
    if joined.isascii():
        return np.frombuffer(joined.encode("ascii"), np.uint8), "ascii"
    # A lone surrogate is an ordinary character to the original.
    return np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4"), "utf-32-le"


def words_of(texts: Sequence[str], folded: Folded, encoding: str) -> tuple[list[str], np.ndarray]:
    """Words of all texts in order, and int64 [len(texts) + 1] row splits into them."""
    output, ends, _ = folded
    text_ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
    is_space = output == ut.SPACE
    # Each text's line end became a space, so every word has a space after it.
    word_ends = np.flatnonzero(is_space[1:] & ~is_space[:-1])
    splits = np.searchsorted(word_ends, ends[text_ends - 1], side="left")
    spaced = output.tobytes().decode(encoding, "surrogatepass")
    # str.split without an argument would follow this Python's Unicode version.
    return list(filter(None, spaced.split(" "))), np.concatenate([[0], splits])


def _split_words(texts: Sequence[str], table: ut.FoldTable) -> tuple[list[str], np.ndarray]:
    """`words_of` texts that are not folded yet."""
    code_points, encoding = lay_out(texts)
    return words_of(texts, fold(code_points, table), encoding)


def split_words(texts: Iterable[str], lower_case: bool) -> Iterator[list[str]]:
    """Words of many texts, in order, in lists of many: `basic_tokenize` at array speed."""
    for chunk in chunks_of(texts):
        yield _split_words(chunk, ut.fold_table(lower_case))[0]


def basic_tokenize(text: str, lower_case: bool) -> list[str]:
    """Words of `text` as the original's BasicTokenizer gives them: `lower_case` also strips accents."""
    return _split_words([text], ut.fold_table(lower_case))[0]


class _PieceCache(dict[str, tuple[int, ...]]):
    """Word -> ids of its pieces, filled on demand by greedy longest-match-first WordPiece."""

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
        ids = self[word] = self._pieces(word) if len(word) <= MAX_CHARS_PER_WORD else self._unknown
        return ids

    def _pieces(self, word: str) -> tuple[int, ...]:
        ids: list[int] = []
        start, pieces = 0, self._initial
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                if (piece_id := pieces.get(word[start:end])) is not None:
                    break
            else:
                return self._unknown
            ids.append(piece_id)
            start, pieces = end, self._suffix
        return tuple(ids)


class BertTokenizer:
    """google-research/bert's FullTokenizer, in its latest version, for str in memory.

    That version deletes only control and format characters (category Cc, Cf). The released models were
    trained before 2019-03-28, when it also deleted unassigned and private-use ones. Special tokens in a
    text are text: "[MASK]" becomes "[", "mask", "]", as in the original.

    Args:
        vocabulary: a token for each id. ValueError for a duplicate and for a missing special token.
        lower_case: lower-case and strip accents; must be what the vocabulary was made with.
    """

    pair_separators, has_segments, words_stand_alone = 1, True, True

    def __init__(self, vocabulary: Sequence[str], lower_case: bool):
        check_vocabulary(vocabulary)
        self.vocabulary = tuple(vocabulary)
        self.lower_case = lower_case
        special_ids = map(self.vocabulary.index, SPECIAL_TOKENS)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = special_ids
        self._table = ut.fold_table(lower_case)
        self._pieces = _PieceCache(self.vocabulary, self.unk_id)

    @classmethod
    def from_file(cls, path: str, lower_case: bool) -> BertTokenizer:
        """Reads a local vocab.txt; errors name the file."""
        try:
            return cls(load_vocabulary(path), lower_case)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def __reduce__(self):
        # Without the cache and the tables: Beam ships this to every worker.
        return BertTokenizer, (self.vocabulary, self.lower_case)

    @property
    def continues_word(self) -> np.ndarray:
        """Bool [V], by id: the token continues a word ("##"), rather than beginning one."""
        return np.array([token.startswith(SUFFIX_INDICATOR) for token in self.vocabulary])

    def tokenize(self, text: str) -> list[str]:
        """Pieces of one text; a word that cannot be cut, or has over 200 characters, is one "[UNK]"."""
        return [self.vocabulary[i] for i in self.encode([text])[0]]

    def encode(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the pieces of many texts, without special tokens.

        Returns:
            ids: int32 [pieces]; those of texts[i] are ids[row_splits[i]:row_splits[i + 1]].
            row_splits: int64 [texts + 1].

        Raises:
            TypeError: something in `texts`, or `texts` itself, is not what it should be: an iterable of str.
        """
        if isinstance(texts, str):
            raise TypeError("encode takes an iterable of str, not one str; use encode([text])")
        ids, counts = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        for chunk in chunks_of(texts):
            words, word_splits = _split_words(chunk, self._table)
            chunk_ids, piece_splits = self.pieces_of(words)
            ids.append(chunk_ids)
            counts.append(np.diff(piece_splits[word_splits]))
        return np.concatenate(ids), np.cumsum(np.concatenate(counts))

    def encode_with_offsets(self, texts: Iterable[str]) -> EncodedTexts:
        """`bert_keras.offsets.encode_with_offsets`."""
        from bert_keras.offsets import encode_with_offsets  # which imports this module

        return encode_with_offsets(self, texts)

    # A word is cut alike wherever it stands.
    encode_words = encode

    def pieces_of(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids int32 of the pieces of words that are split and folded, and int64 [len(words) + 1] row splits."""
        pieces = list(map(self._pieces.__getitem__, words))
        lengths = np.fromiter(itertools.chain([0], map(len, pieces)), np.int64, len(words) + 1)
        splits = np.cumsum(lengths)
        ids = np.fromiter(itertools.chain.from_iterable(pieces), np.int32, splits[-1])
        if len(self._pieces) > _CACHED_WORDS:
            self._pieces.clear()
        return ids, splits


def tokenize_lines(tokenizer: BertTokenizer, lines: BinaryIO, output: TextIO) -> None:
    """Writes the ids of each line of UTF-8 text, separated by spaces; what arrives together is done together.

    Args:
        lines: a buffered file; bytes that are not UTF-8 are dropped, as the original's `convert_to_unicode` does.
    """
    begun: list[bytes] = []  # a line that has not ended yet
    while block := lines.read1(_READ_BYTES):  # type: ignore[attr-defined]
        *whole, rest = block.split(b"\n")
        if whole:
            whole[0] = b"".join([*begun, whole[0]])
            begun = []
            _write_ids(tokenizer, whole, output)
            output.flush()
        begun.append(rest)
    if last := b"".join(begun):
        _write_ids(tokenizer, [last], output)


def _write_ids(tokenizer: BertTokenizer, lines: list[bytes], output: TextIO) -> None:
    ids, splits = tokenizer.encode(line.decode("utf-8", "ignore") for line in lines)
    words = list(map(str, ids.tolist()))
    output.writelines(" ".join(words[start:end]) + "\n" for start, end in itertools.pairwise(splits.tolist()))


def make_tokenizer(
    vocabulary: Sequence[str], spec: Mapping[str, Any], merges: Sequence[tuple[str, str]] = ()
) -> BertTokenizer | ByteBpeTokenizer:
    """The tokenizer of a vocabulary, by its `vocab_spec.json`.

    Args:
        merges: of byte-level BPE.
    """
    if spec["algorithm"] == "byte_bpe":
        return ByteBpeTokenizer(vocabulary, merges)
    return BertTokenizer(vocabulary, spec["lower_case"])


def chunks_of(texts: Iterable[str]) -> Iterator[list[str]]:
    """Runs of texts that just reach _CHUNK_CHARS together; one text is never cut."""
    chunk: list[str] = []
    size = 0
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"texts must be str, found {type(text).__name__}: {text!r:.80}; decode first")
        chunk.append(text)
        size += len(text) + 1
        if size >= _CHUNK_CHARS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
