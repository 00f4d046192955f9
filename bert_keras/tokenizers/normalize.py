"""BERT's normalization (google-research/bert, tokenization.py, BasicTokenizer), vectorized.

Many texts form one array of code points, which is rewritten by table look-ups and split at spaces.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_keras.tokenizers import unicode_tables as ut

# Kana, and the scripts of Southeast Asia (line breaking class SA).
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u3040-\u30ff\u31f0-\u31ff"
    "\ua9e0-\ua9ff\uaa60-\uaadf\U00011700-\U0001174f]"
)
_CHUNK_CHARS = 1 << 18  # enough to make NumPy's overhead vanish, few enough to stay in the cache
_FEW_CHARS = 2000  # up to here the calls of NumPy take longer than `str.translate`

# By kind: length of the replacement, with the spaces around it.
_WIDTH = np.array([(k & ut.LENGTH_MASK) + (2 if k & ut.ISOLATED else 0) for k in range(256)], np.int64)


def _final_sigma(code_points: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Replace the capital sigmas that `str.lower` makes final."""
    # A cased letter precedes it and none follows it, skipping case-ignorable characters. White space is neither cased
    # nor ignorable, so a whole text gives the same result as its words one by one (the original's way).
    relevant = np.flatnonzero((kind & ut.IGNORABLE) == 0)
    bits = kind[relevant]
    cased = np.concatenate([[False], (bits & ut.CASED) != 0, [False]])
    final = ((bits & ut.SIGMA) != 0) & cased[:-2] & ~cased[2:]
    code_points = code_points.copy()
    code_points[relevant[final]] = ut.FINAL_SIGMA
    return code_points


def _order_marks(output: np.ndarray, source: np.ndarray, kind: np.ndarray, table: ut.FoldTable) -> None:
    """Sort marks but Mn, and their `source`, into NFD's order, in place: stably by combining class between starters."""
    run = np.cumsum((kind & ut.STARTER) != 0)
    places = np.flatnonzero((kind & ut.MARK)[source])
    classes = (output[places, None] == table.marks) @ table.mark_classes
    moved = places[np.lexsort((classes, run[source[places]]))]
    output[places], source[places] = output[moved], source[moved]


class Normalized(NamedTuple):
    """Code points [N] rewritten into words between spaces, M code points.

    `output`: [M], of the type of the code points. `ends`: int64 [N], where the replacement of each code point ends.
    `source`: int64 [M], the code point that each output (also a space around a sign) comes from; None if not needed.
    """

    output: np.ndarray
    ends: np.ndarray
    source: np.ndarray | None


def normalize(code_points: np.ndarray, table: ut.FoldTable, with_source: bool = False) -> Normalized:
    """Rewrite code points [N] (uint8 if ASCII, else uint32) into words between spaces."""
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
    return Normalized(output, ends, source)


def to_code_points(texts: Sequence[str]) -> tuple[np.ndarray, str]:
    """Code points of all texts, a line end after each (uint8 if all are ASCII, else uint32), and their encoding.

    Neither words nor rules cross a line end.
    """
    joined = "\n".join([*texts, ""])
    if joined.isascii():
        return np.frombuffer(joined.encode("ascii"), np.uint8), "ascii"
    # A lone surrogate is an ordinary character to the original.
    return np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4"), "utf-32-le"


def split_at_spaces(texts: Sequence[str], normalized: Normalized, encoding: str) -> tuple[list[str], np.ndarray]:
    """Words of all texts in order, and int64 [len(texts) + 1] row splits into them."""
    output, ends, _ = normalized
    text_ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
    is_space = output == ut.SPACE
    # Each text's line end became a space, so a space follows every word.
    word_ends = np.flatnonzero(is_space[1:] & ~is_space[:-1])
    splits = np.searchsorted(word_ends, ends[text_ends - 1], side="left")
    spaced = output.tobytes().decode(encoding, "surrogatepass")
    # str.split without an argument would follow this Python's Unicode version.
    return list(filter(None, spaced.split(" "))), np.concatenate([[0], splits])


def split_chunk(texts: Sequence[str], table: ut.FoldTable) -> tuple[list[str], np.ndarray]:
    """Normalize texts and split them: `split_at_spaces` of raw texts."""
    if sum(map(len, texts)) <= _FEW_CHARS and all(map(str.isascii, texts)):
        words = [list(filter(None, text.translate(table.ascii).split(" "))) for text in texts]
        return list(itertools.chain.from_iterable(words)), np.cumsum([0, *map(len, words)])
    code_points, encoding = to_code_points(texts)
    return split_at_spaces(texts, normalize(code_points, table), encoding)


def split_words(texts: Iterable[str], lower_case: bool, **further: Any) -> Iterator[list[str]]:
    """Words of many texts, in order, in long lists, by the rules of `unicode_tables.Normalization`."""
    for chunk in chunks_of(texts):
        yield split_chunk(chunk, ut.fold_table(lower_case, **further))[0]


def basic_tokenize(text: str, lower_case: bool, **further: Any) -> list[str]:
    """Words of `text` by the rules of `unicode_tables.Normalization`, as the original's BasicTokenizer returns them."""
    return split_chunk([text], ut.fold_table(lower_case, **further))[0]


def space_letters(text: str) -> str:
    """Put blanks around each letter of the scripts without blanks that `basic_tokenize` keeps whole."""
    return _UNSPACED.sub(r" \g<0> ", text)


def chunks_of(texts: Iterable[str]) -> Iterator[list[str]]:
    """Group texts into lists that just reach _CHUNK_CHARS; a text is never cut. TypeError: they are not str."""
    if isinstance(texts, str):
        raise TypeError("the texts must be an iterable of str, not one str; give [text]")
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
