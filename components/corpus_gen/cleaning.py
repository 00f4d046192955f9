"""What is mended in a document, and why it is dropped.

Normal forms and categories of characters are `unicodedata2`'s, whose release is a version of Unicode: Python's own
change with Python's version, and the same corpus must become the same documents on all of them.
"""

from __future__ import annotations

import functools

import numpy as np
import unicodedata2

from components.corpus_gen.languages import parse_languages, share_in_languages
from components.corpus_gen.settings import CleaningSettings

TOO_SHORT, TOO_MANY_SYMBOLS, OTHER_LANGUAGE = "too_short", "too_many_symbols", "other_language"
# Why a document is dropped; corpus.json counts them as dropped_too_short and so on.
REASONS = {
    TOO_SHORT: "fewer characters than corpus.cleaning.min_characters",
    TOO_MANY_SYMBOLS: "a larger share of symbols than corpus.cleaning.max_symbol_fraction",
    OTHER_LANGUAGE: "less than corpus.cleaning.min_language_fraction of it is in corpus.cleaning.languages",
}

_CODE_POINTS = 0x110000
_ASCII_NO_SYMBOLS = b"\t 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Cleaner:
    """Mends and judges documents by the settings; plain data, so Beam can ship it.

    Raises:
        ValueError: `settings.languages` has an unknown one; names those that are known.
    """

    def __init__(self, settings: CleaningSettings):
        self._settings = settings
        self._languages = parse_languages(settings.languages)
        self._on = bool(
            settings.unicode_normalization != "none"
            or settings.min_characters
            or settings.max_symbol_fraction < 1
            or self._languages
        )

    def __call__(self, lines: list[str]) -> tuple[list[str], str]:
        """The mended lines of a document, and why it is dropped: one of REASONS, "" if it is kept.

        What is judged is the mended text. Characters are counted without line ends.

        Args:
            lines: none blank, none with blanks at its ends; nor are those returned.
        """
        if not self._on:
            return lines, ""
        settings = self._settings
        if settings.unicode_normalization != "none":
            lines = [normalize(line, settings.unicode_normalization) for line in lines]
        if settings.min_characters and sum(map(len, lines)) < settings.min_characters:
            return lines, TOO_SHORT
        if settings.max_symbol_fraction < 1 and symbol_fraction(lines) > settings.max_symbol_fraction:
            return lines, TOO_MANY_SYMBOLS
        if self._languages and share_in_languages("\n".join(lines), self._languages) < settings.min_language_fraction:
            return lines, OTHER_LANGUAGE
        return lines, ""


def normalize(line: str, form: str) -> str:
    """The line in a Unicode normal form, "NFC" or "NFKC", without blanks at its ends (NFKC makes some)."""
    return line if line.isascii() else unicodedata2.normalize(form, line).strip()


def symbol_fraction(lines: list[str]) -> float:
    """The share [0, 1] of the characters that are neither letter, mark, number nor blank; 0 of no characters."""
    text = "".join(lines)
    if text.isascii():
        symbols = len(text.encode("ascii").translate(None, _ASCII_NO_SYMBOLS))
    else:
        code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        symbols = int(np.count_nonzero(_is_symbol()[code_points]))
    return symbols / max(len(text), 1)


@functools.cache
def _is_symbol() -> np.ndarray:
    """bool [0x110000], by code point: not of the categories L*, M*, N*, Z*, nor a tab."""
    symbol = np.fromiter(
        (unicodedata2.category(char)[0] not in "LMNZ" for char in map(chr, range(_CODE_POINTS))), bool, _CODE_POINTS
    )
    symbol[ord("\t")] = False
    return symbol
