"""Write bert_keras/tokenizers/unicode_tables.npz from the unicodedata of Python 3.11, which has Unicode 14.0.0.

    python scripts/make_unicode_tables.py [OUTPUT]

The tables are part of the tokenization: a vocabulary and a model are valid only with the tables they were
made with. So run this again only to change the format, never for a newer Unicode version.
`bert_keras/tokenizers/unicode_tables.py` documents the arrays; tests/unit/bert_keras/tokenizers/test_wordpiece.py
makes them again and compares.
"""

import sys
import unicodedata

import numpy as np

from bert_keras.tokenizers import unicode_tables as ut

ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def is_deleted(char: str) -> bool:
    if char in "\t\n\r":
        return False
    return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


def is_space(char: str) -> bool:
    # The original's cleaning replaces only Zs, but its str.split splits at Zl and Zp too.
    return char in "\t\n\r\u2028\u2029" or unicodedata.category(char) == "Zs"


def is_ideograph(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in ut.IDEOGRAPH_BLOCKS)


def is_punctuation(char: str) -> bool:
    return char in ASCII_PUNCTUATION or unicodedata.category(char).startswith("P")


def casing(char: str) -> int:
    """The class of `char` in the final sigma rule, probed with str.lower: unicodedata lacks the properties."""
    if is_deleted(char):
        return ut.IGNORABLE
    if (char + "Σ").lower().endswith("ς"):
        return ut.CASED
    return ut.IGNORABLE if ("A" + char + "Σ").lower().endswith("ς") else 0


def is_movable(char: str) -> bool:
    return unicodedata.combining(char) > 0 and unicodedata.category(char) != "Mn"


def fold(char: str, lower_case: bool, strip_accents: bool) -> tuple[int, str]:
    """(kind, replacement) of one character in one tokenization."""
    decomposed, bits = char, 0
    if lower_case:
        decomposed = char if is_deleted(char) else char.lower()
        bits = casing(char) | (ut.SIGMA if ord(char) == ut.CAPITAL_SIGMA else 0)
    if strip_accents and not is_deleted(char):
        decomposed = unicodedata.normalize("NFD", decomposed)
        bits |= ut.STARTER if any(unicodedata.combining(c) == 0 for c in decomposed) else 0
        bits |= ut.MARK if any(is_movable(c) for c in decomposed) else 0
    if is_deleted(char):
        return bits, ""
    if is_space(char):
        return bits | 1, " "
    if strip_accents:
        decomposed = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
    assert len(decomposed) <= ut.MAX_LENGTH, char
    if is_ideograph(char) or any(is_punctuation(c) for c in decomposed):
        assert len(decomposed) == 1, char
        bits |= ut.ISOLATED
    return bits | len(decomposed), decomposed


def paged(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split [0x110000, ...] into (index int32 [4352], pages [n, 256, ...]), equal pages stored once."""
    pages = values.reshape(-1, ut.PAGE_SIZE, *values.shape[1:])
    numbers: dict[bytes, int] = {}
    index = [numbers.setdefault(page.tobytes(), len(numbers)) for page in pages]
    return np.array(index, np.int32), pages[np.unique(index, return_index=True)[1]]


def make_tables() -> dict[str, np.ndarray]:
    """All arrays of unicode_tables.npz by name. RuntimeError on a Python with another Unicode version."""
    if unicodedata.unidata_version != ut.UNICODE_VERSION:
        raise RuntimeError(
            f"the tables are frozen at Unicode {ut.UNICODE_VERSION}, but this Python has "
            f"{unicodedata.unidata_version}; run this with Python 3.11"
        )
    movable = [c for c in range(ut.CODE_POINTS) if is_movable(chr(c))]
    arrays: dict[str, np.ndarray] = {}
    for (lower_case, strip_accents), prefix in ut.PREFIXES.items():
        kind = np.zeros(ut.CODE_POINTS, np.uint8)
        offsets = np.zeros((ut.CODE_POINTS, ut.MAX_LENGTH), np.int32)
        for code_point in range(ut.CODE_POINTS):
            kind[code_point], replacement = fold(chr(code_point), lower_case, strip_accents)
            for place, char in enumerate(replacement):
                offsets[code_point, place] = ord(char) - code_point
        arrays[f"{prefix}_kind_index"], arrays[f"{prefix}_kind_pages"] = paged(kind)
        arrays[f"{prefix}_offset_index"], arrays[f"{prefix}_offset_pages"] = paged(offsets)
        arrays[f"{prefix}_marks"] = np.array(movable, np.int32)
        arrays[f"{prefix}_mark_classes"] = np.array([unicodedata.combining(chr(c)) for c in movable], np.int32)
    return arrays


if __name__ == "__main__":
    # NumPy writes every member with the date 1980-01-01: the same arrays and zlib give the same bytes.
    np.savez_compressed(sys.argv[1] if len(sys.argv) > 1 else ut.FILE, **make_tables())  # type: ignore[arg-type]
