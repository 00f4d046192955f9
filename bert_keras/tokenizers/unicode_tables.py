"""Frozen Unicode tables of BERT's basic tokenization; tokens do not depend on the version of Python or ICU.

google-research/bert's `BasicTokenizer` treats code points one by one: cleaning deletes a code point or turns it
into a space, ideographs and punctuation get spaces around them, lower-casing and stripping accents replace it by
at most three others. Two rules look at neighbours: when lower-casing the final sigma of `str.lower`, and when stripping
accents the canonical ordering of NFD, which matters only for marks outside category Mn (those in it are stripped). So
a tokenization is one table: a `kind` and a replacement for each code point, with bits in `kind` that trigger the two
rules. Lower-casing without stripping accents is `str.lower` alone: an accent after its letter stays after it.

`scripts/make_unicode_tables.py` writes `unicode_tables.npz`. Both tokenizers read it through this module,
NumPy as flat arrays, TensorFlow in pages.
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

# Python 3.11's. The version behind the released models (Python 2 or 3.5) is not recorded.
UNICODE_VERSION = "14.0.0"
FILE = Path(__file__).with_name("unicode_tables.npz")

CODE_POINTS = 0x110000
PAGE_BITS = 8
PAGE_SIZE = 1 << PAGE_BITS
MAX_LENGTH = 3  # code points in the longest replacement: a Hangul syllable is three jamo

SPACE = 0x20
CAPITAL_SIGMA = 0x3A3
FINAL_SIGMA = 0x3C2

# CJK ideographs in the sense of the original's BasicTokenizer: the blocks, not the script property.
IDEOGRAPH_BLOCKS = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)),
    *((0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)

# Lower-casing, stripping accents -> prefix of the arrays in the file.
PREFIXES = {(False, False): "cased", (True, True): "uncased", (True, False): "lowered", (False, True): "stripped"}

# Bits of `kind`.
LENGTH_MASK = 0b11  # code points in the replacement, 0 (deleted) to MAX_LENGTH
ISOLATED = 1 << 2  # a word of its own: an ideograph or punctuation; its length is 1
CASED = 1 << 3  # cased and not case-ignorable, for the final sigma rule of str.lower
IGNORABLE = 1 << 4  # skipped by that rule: case-ignorable, or deleted before lower-casing
STARTER = 1 << 5  # canonical ordering moves no mark across it
MARK = 1 << 6  # its replacement contains a mark that canonical ordering may move
SIGMA = 1 << 7  # the capital sigma


@dataclasses.dataclass(frozen=True)
class Normalization:
    """The rules of a WordPiece vocabulary, under the names of `transformers`; they must match how it was made.

    `lower_case`: lower-case. `strip_accents`: strip accents, which cuts Korean syllables into letters; None: as
    `lower_case`. `tokenize_chinese_chars`: each ideograph is a word.
    """

    lower_case: bool
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True

    def __post_init__(self) -> None:
        if self.strip_accents is None:
            object.__setattr__(self, "strip_accents", self.lower_case)

    @property
    def fields(self) -> dict[str, Any]:
        """The attributes by name, as `vocab_spec.json` has them."""
        return dataclasses.asdict(self)


def normalization_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `fields` that are attributes of `Normalization`, which has defaults for all but `lower_case`."""
    return {name.name: fields[name.name] for name in dataclasses.fields(Normalization) if name.name in fields}


@dataclasses.dataclass(frozen=True, eq=False)
class FoldTable:
    """One tokenization's table in pages of 256 code points, equal pages stored once.

    The entry of code point c is `pages[index[c >> PAGE_BITS], c & (PAGE_SIZE - 1)]`; its replacement is
    `c + offsets`, cut to the length in its `kind`.
    """

    kind_index: np.ndarray  # int32 [4352]
    kind_pages: np.ndarray  # uint8 [pages, 256], the bits above
    offset_index: np.ndarray  # int32 [4352]
    offset_pages: np.ndarray  # int32 [pages, 256, 3]
    marks: np.ndarray  # int32 [marks], the code points that canonical ordering may move
    mark_classes: np.ndarray  # int32 [marks], their canonical combining classes

    @functools.cached_property
    def kind(self) -> np.ndarray:
        """uint8 [0x110000]: `kind` by code point."""
        return self.kind_pages[self.kind_index].reshape(CODE_POINTS)

    @functools.cached_property
    def replacement(self) -> np.ndarray:
        """uint32 [0x110000, 3]: the replacement of each code point; unspecified past its length."""
        offsets = self.offset_pages[self.offset_index].reshape(CODE_POINTS, MAX_LENGTH)
        return (np.arange(CODE_POINTS, dtype=np.int32)[:, None] + offsets).astype(np.uint32)

    @functools.cached_property
    def ascii(self) -> list[str]:
        """The replacement of each ASCII character, with the spaces around it; none has more than one character."""
        letters = map(chr, self.replacement[:128, 0].tolist())
        widths = [kind & (LENGTH_MASK | ISOLATED) for kind in self.kind[:128].tolist()]
        return [{0: "", 1: letter}.get(width, f" {letter} ") for letter, width in zip(letters, widths, strict=True)]


@functools.cache
def fold_table(lower_case: bool, **further: Any) -> FoldTable:
    """The table of a `Normalization` with these attributes; read once per process."""
    rules = Normalization(lower_case, **further)
    prefix = PREFIXES[rules.lower_case, bool(rules.strip_accents)]
    with np.load(FILE) as arrays:
        names = [field.name for field in dataclasses.fields(FoldTable)]
        table = FoldTable(**{name: arrays[f"{prefix}_{name}"] for name in names})
    if rules.tokenize_chinese_chars:
        return table
    kind = table.kind.copy()
    for first, last in IDEOGRAPH_BLOCKS:
        kind[first : last + 1] &= 0xFF - ISOLATED
    pages, index = np.unique(kind.reshape(-1, PAGE_SIZE), axis=0, return_inverse=True)
    return dataclasses.replace(table, kind_pages=pages, kind_index=index.reshape(-1).astype(np.int32))


@functools.cache
def white_space() -> np.ndarray:
    """Bool [0x110000]: white space by BERT's definition, which cleaning replaces by a space."""
    table = fold_table(lower_case=False)
    return ((table.kind & LENGTH_MASK) == 1) & (table.replacement[:, 0] == SPACE)
