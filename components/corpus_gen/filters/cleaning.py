"""Cleans documents, and decides which ones to drop.

Normal forms are those of `unicodedata2`, whose release fixes the version of Unicode. Python's change with its version,
but the same corpus must give the same documents everywhere.
"""

from collections import Counter

import unicodedata2

from components.corpus_gen.languages import parse_languages, share_in_languages
from components.corpus_gen.settings import CleaningSettings

TOO_SHORT, OTHER_LANGUAGE = "too_short", "other_language"
# Rules that drop a document.
RULES = {
    TOO_SHORT: "fewer characters than corpus.cleaning.min_characters",
    OTHER_LANGUAGE: "less than corpus.cleaning.min_language_fraction of it is in corpus.cleaning.languages",
}


class Cleaner:
    """The filter of `CleaningSettings`; plain data, so Beam can pickle it."""

    def __init__(self, settings: CleaningSettings):
        self._settings = settings
        self._languages = parse_languages(settings.languages)
        self.on = bool(settings.unicode_normalization != "none" or settings.min_characters or self._languages)

    def __call__(self, lines: list[str], found: Counter[str]) -> tuple[list[str], str]:
        """Clean a document; returns its lines and the rule that drops it: one of RULES, "" if it is kept.

        The filters apply to the cleaned text. Line ends do not count as characters. All lines are stripped.
        """
        settings = self._settings
        if settings.unicode_normalization != "none":
            lines = [normalize(line, settings.unicode_normalization) for line in lines]
        if settings.min_characters and sum(map(len, lines)) < settings.min_characters:
            return lines, TOO_SHORT
        if self._languages and share_in_languages("\n".join(lines), self._languages) < settings.min_language_fraction:
            return lines, OTHER_LANGUAGE
        return lines, ""


def normalize(line: str, form: str) -> str:
    """Normalize a line to the Unicode form "NFC" or "NFKC" and strip it (NFKC can add blanks)."""
    return line if line.isascii() else unicodedata2.normalize(form, line).strip()
