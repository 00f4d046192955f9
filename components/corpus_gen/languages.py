"""The languages of a text, by CLD2: docs/decisions/0007-language-detector.md says why."""

from __future__ import annotations

import functools
import re

# Of a document, so many characters are looked at: more tell CLD2 nothing new.
CHARACTERS = 1000

# Codes of CLD2 that ISO 639 has replaced, or that name the script too.
_ISO_639 = {"iw": "he", "jw": "jv", "zh-Hant": "zh"}
# What CLD2 refuses as invalid: control characters, lone surrogates and noncharacters.
_REFUSED = re.compile(
    "[\0-\x08\x0b\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)


@functools.cache
def detectable_languages() -> frozenset[str]:
    """ISO 639-1 codes, 639-3 where there is none, of the languages that can be told apart."""
    import pycld2

    return frozenset(
        _ISO_639.get(code, code)
        for name, code in pycld2.LANGUAGES
        # X_: scripts without a language, and jokes.
        if name in pycld2.DETECTED_LANGUAGES and not name.startswith("X_")
    )


def parse_languages(languages: str) -> frozenset[str]:
    """The codes in a list like "en, de"; none of "".

    Raises:
        ValueError: one is not a language that can be detected; names those that are.
    """
    if not languages.strip():
        return frozenset()
    codes = frozenset(code.strip() for code in languages.split(","))
    if unknown := codes - detectable_languages():
        raise ValueError(
            f"no language that can be detected is called {', '.join(map(repr, sorted(unknown)))}; "
            f"there are {', '.join(sorted(detectable_languages()))}"
        )
    return codes


def share_in_languages(text: str, languages: frozenset[str]) -> float:
    """The share [0, 1] of the text, by its first CHARACTERS, that is in one of the languages.

    0 where the detector is not sure of any language: few words, names, numbers. It calculates with integers: the
    answer is the same on every machine.
    """
    import pycld2

    _, _, found = pycld2.detect(_REFUSED.sub(" ", text[:CHARACTERS]), isPlainText=True, bestEffort=False)
    return sum(percent for _, code, percent, _ in found if _ISO_639.get(code, code) in languages) / 100
