"""Cleans documents, and decides which ones to drop.

Normal forms and categories of characters are from `unicodedata2`, whose release fixes the version of Unicode. Those of
Python change with its version, but the same corpus must give the same documents everywhere.
"""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np
import unicodedata2

from components.corpus_gen.languages import parse_languages, share_in_languages
from components.corpus_gen.settings import CleaningSettings

TOO_SHORT, TOO_MANY_SYMBOLS, OTHER_LANGUAGE = "too_short", "too_many_symbols", "other_language"
# Rules that drop a document.
RULES = {
    TOO_SHORT: "fewer characters than corpus.cleaning.min_characters",
    TOO_MANY_SYMBOLS: "a larger share of symbols than corpus.cleaning.max_symbol_fraction",
    OTHER_LANGUAGE: "less than corpus.cleaning.min_language_fraction of it is in corpus.cleaning.languages",
}

_CODE_POINTS = 0x110000
_ASCII_NO_SYMBOLS = b"\t 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Cleaner:
    """The filter of `CleaningSettings`; plain data, so Beam can pickle it.

    Raises:
        ValueError: `settings.languages` has an unknown language; lists the known ones.
    """

    def __init__(self, settings: CleaningSettings):
        self._settings = settings
        self._languages = parse_languages(settings.languages)
        self.on = bool(
            settings.unicode_normalization != "none"
            or settings.min_characters
            or settings.max_symbol_fraction < 1
            or self._languages
        )

    def __call__(self, lines: list[str], found: Counter[str]) -> tuple[list[str], str]:
        """Clean a document; returns its lines and the rule that drops it: one of RULES, "" if it is kept.

        The filters apply to the cleaned text. Line ends do not count as characters.

        Args:
            lines: non-blank lines without blanks at their ends; the same holds for the returned lines.
        """
        if not self.on:
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
    """Normalize a line to the Unicode form "NFC" or "NFKC" and strip it (NFKC can add blanks)."""
    return line if line.isascii() else unicodedata2.normalize(form, line).strip()


def symbol_fraction(lines: list[str]) -> float:
    """Share [0, 1] of the characters that are not letters, marks, numbers or blanks; 0 without characters."""
    text = "".join(lines)
    if text.isascii():
        symbols = len(text.encode("ascii").translate(None, _ASCII_NO_SYMBOLS))
    else:
        code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        symbols = int(np.count_nonzero(_is_symbol()[code_points]))
    return symbols / max(len(text), 1)


@functools.cache
def _is_symbol() -> np.ndarray:
    """Bool [0x110000], by code point: outside of the categories L*, M*, N*, Z*, and not a tab."""
    symbol = np.fromiter(
        (unicodedata2.category(char)[0] not in "LMNZ" for char in map(chr, range(_CODE_POINTS))), bool, _CODE_POINTS
    )
    symbol[ord("\t")] = False
    return symbol
