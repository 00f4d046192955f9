"""Languages of a text, detected with CLD2 (why: docs/decisions/0007-language-detector.md); countries in settings."""

import functools
import re

# Characters of a document that are examined; more do not improve CLD2's answer.
CHARACTERS = 1000
# ISO 639-2's code for a text whose language is not known.
UNDETERMINED = "und"

# Codes of CLD2 that ISO 639 has replaced, or that include a script.
_ISO_639 = {"iw": "he", "jw": "jv", "zh-Hant": "zh"}
# Characters that CLD2 rejects: control characters, lone surrogates and noncharacters.
_REFUSED = re.compile(
    "[\0-\x08\x0b\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)


@functools.cache
def detectable_languages() -> frozenset[str]:
    """Codes of the detectable languages: ISO 639-1, or 639-3 where there is none."""
    import pycld2

    return frozenset(
        _ISO_639.get(code, code)
        for name, code in pycld2.LANGUAGES
        # X_: scripts without a language, and joke languages.
        if name in pycld2.DETECTED_LANGUAGES and not name.startswith("X_")
    )


def parse_languages(languages: str) -> frozenset[str]:
    """Parse a list of language codes such as "en, de"; ValueError, which lists all, if one cannot be detected."""
    if not languages.strip():
        return frozenset()
    codes = frozenset(code.strip() for code in languages.split(","))
    if unknown := codes - detectable_languages():
        raise ValueError(
            f"languages that cannot be detected: {', '.join(map(repr, sorted(unknown)))}; "
            f"choose from {', '.join(sorted(detectable_languages()))}"
        )
    return codes


def share_in_languages(text: str, languages: frozenset[str]) -> float:
    """Share [0, 1] of the text, judged by its first CHARACTERS, that is in one of the languages.

    0 if the detector, which is the same on every machine, is not sure of any language: few words, names, numbers.
    """
    return sum(percent for code, percent in _detect(text) if code in languages) / 100


def language_of(text: str) -> str:
    """The language of most of the text, judged by its first CHARACTERS; UNDETERMINED if the detector is not sure."""
    return max(_detect(text), key=lambda detected: detected[1], default=(UNDETERMINED, 0))[0]


def _detect(text: str) -> list[tuple[str, int]]:
    """(code, percent) of the languages that the detector is sure of."""
    import pycld2

    _, _, detected = pycld2.detect(_REFUSED.sub(" ", text[:CHARACTERS]), isPlainText=True, bestEffort=False)
    return [(_ISO_639.get(code, code), percent) for _, code, percent, _ in detected if code != "un"]


def parse_regions(regions: str) -> frozenset[str]:
    """Parse a list of countries such as "us, DE"; ValueError if a country's phone numbers are unknown."""
    if not regions.strip():
        return frozenset()
    from phonenumbers import SUPPORTED_REGIONS

    codes = frozenset(code.strip().upper() for code in regions.split(","))
    if unknown := sorted(codes - SUPPORTED_REGIONS):
        raise ValueError(
            f"corpus.personal_data.phone_regions has {', '.join(map(repr, unknown))}; give the two letters of ISO "
            "3166-1 for each country, such as US, DE or CN"
        )
    return codes
