"""Quality rules of published corpora: Gopher's, C4's and FineWeb's, in the order of FineWeb's own pipeline.

Decisions are those of datatrove's `GopherRepetitionFilter`, `GopherQualityFilter`, `C4QualityFilter` and
`FineWebQualityFilter` on English (benchmarks/corpus/compare_datatrove.md has the agreement, and every difference).
Sources: Rae et al. 2021, appendix A.1.1; Raffel et al. 2020, section 2.2; Penedo et al. 2024, section 3.6.
"""

import functools
import re
from collections import Counter

import unicodedata2

from components.corpus_gen.filters import repetition
from components.corpus_gen.filters.english_words import split_words
from components.corpus_gen.settings import QualitySettings

# Rules that drop documents, in the order in which they are checked; c4_line_* and c4_citations change them.
RULES = {
    **repetition.RULES,
    "gopher_few_words": "fewer words than corpus.quality.gopher_min_words",
    "gopher_many_words": f"more than {QualitySettings.gopher_max_words:,} words",
    "gopher_short_words": "a smaller mean length of words than corpus.quality.gopher_min_word_length",
    "gopher_long_words": "a larger mean length of words than corpus.quality.gopher_max_word_length",
    "gopher_hashes": f"more than {QualitySettings.gopher_max_symbols} hash signs for each word",
    "gopher_ellipses": f"more than {QualitySettings.gopher_max_symbols} ellipses for each word",
    "gopher_bullet_lines": f"a share of lines that begin with a bullet above {QualitySettings.gopher_max_bullet_lines}",
    "gopher_ellipsis_lines": (
        f"a share of lines that end in an ellipsis above {QualitySettings.gopher_max_ellipsis_lines}"
    ),
    "gopher_non_alphabetic": "a smaller share of words with a letter than corpus.quality.gopher_min_alphabetic_words",
    "gopher_stop_words": "fewer of corpus.quality.gopher_stop_words than corpus.quality.gopher_min_stop_words",
    "c4_line_long_word": f"lines removed: a word longer than {QualitySettings.c4_max_word_length:,} characters",
    "c4_citations": "citation marks removed, such as [1] and [citation needed]",
    "c4_line_punctuation": "lines removed: no full stop or the like at the end",
    "c4_line_few_words": f"lines removed: fewer than {QualitySettings.c4_min_line_words} words",
    "c4_line_javascript": "lines removed: the word JavaScript",
    "c4_line_policy": "lines removed: terms of use, cookies, privacy policy",
    "c4_lorem_ipsum": "it has the placeholder text lorem ipsum",
    "c4_curly_bracket": "it has a curly bracket, as code has",
    "c4_few_sentences": "fewer sentences than corpus.quality.c4_min_sentences, after C4's rules on lines",
    "fineweb_unpunctuated_lines": (
        f"a share of lines that end in a full stop or the like below {QualitySettings.fineweb_min_punctuated_lines}"
    ),
    "fineweb_short_lines": f"a share of short lines above {QualitySettings.fineweb_max_short_lines}",
    "fineweb_repeated_lines": (
        f"a share of characters in lines that occur before above {QualitySettings.fineweb_max_repeated_characters}"
    ),
    "fineweb_many_lines": f"more than {QualitySettings.fineweb_max_lines_per_word} line ends for each word",
}
# Unicode's Sentence_Terminal, as datatrove lists it.
_TERMINAL = (
    r"!.?\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b\u1362\u1367\u1368"
    r"\u166e\u1735\u1736\u17d4-\u17d6\u17d9\u17da\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d\u1b7e"
    r"\u1c3b\u1c3c\u1c7e\u1c7f\u203c\u203d\u2047-\u2049\u2e2e\u2e3c\u2e53\u2e54\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876"
    r"\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61"
    r"\U00010a56\U00010a57\U00010f55-\U00010f59\U00010f86-\U00010f89\U00011047\U00011048\U000110be-\U000110c1"
    r"\U00011141-\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df\U00011238\U00011239\U0001123b\U0001123c"
    r"\U000112a9\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9-\U000115d7\U00011641\U00011642\U0001173c-\U0001173e"
    r"\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c\U00011c41\U00011c42\U00011ef7\U00011ef8\U00011f43"
    r"\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44\U00016e98\U0001bc9f\U0001da88"
)
_ends_in_terminal = re.compile(f"[{_TERMINAL}]$").search
_is_terminal = re.compile(f"[{_TERMINAL}]").fullmatch
# What spaCy makes a word of: white space but for a blank in front.
_WIDE_SPACE = re.compile(r" \s+|[^\S ]\s*")
# datatrove's PUNCTUATION_SET: what is made of these alone is not a word.
_is_symbols = re.compile(
    r"[\0-\x08\x0b-\x1f!-/:-@\[-`{-\x9f\u00ab\u00b4\u00bb\u2013\u2014\u2019\u201c-\u201e\u2026\u2236\u2501\u25ba\u3001"
    rf"\u3008-\u300d\u3010\u3011\uff05\uff08\uff09\uff0c\uff11\uff1a\uff1b\uff5e{_TERMINAL}]+"
).fullmatch
_C4_END = (".", "?", "!", '"', "'")
_ELLIPSES = ("...", "…")
_CITATION = re.compile(r"\[(?:[0-9]*|edit|citation needed)\]")
_POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


class Quality:
    """The filter of `QualitySettings`; plain data, so Beam can pickle it."""

    def __init__(self, settings: QualitySettings):
        self._settings = settings
        self.on = settings.on

    def __call__(self, lines: list[str], found: Counter[str]) -> tuple[list[str], str]:
        """Check a document; returns its lines, some removed by C4's rules, and the rule that drops it: "" keeps it.

        All lines are stripped. `found` gets what C4's rules change, also in documents that are dropped.
        """
        settings = self._settings
        rule, text = "", "\n".join(lines)
        words: list[str] | None = None
        if not lines:
            return lines, ""
        if settings.gopher_repetition:
            rule = repetition.repetition_of_lines(lines, len(text), settings)
            if not rule:
                words = split_words(text)
                rule = repetition.repetition_of_words(words, len(text), settings)
        if settings.gopher and not rule:
            words = split_words(text) if words is None else words
            rule = gopher_rule(text, words, settings)
        if settings.c4 and not rule:
            kept, rule = apply_c4(text.splitlines(), found, settings)
            if not rule and kept != lines:
                lines, text, words = kept, "\n".join(kept), None
        if settings.fineweb and not rule:
            rule = fineweb_rule(lines, words, settings)
        return lines, rule


def gopher_rule(text: str, words: list[str], settings: QualitySettings) -> str:
    """The rule of Gopher's on words, symbols and lines that drops a document, or ""."""
    spoken = letters = alphabetic = 0
    counts = Counter(words)
    for word, count in counts.items():
        is_word, is_alphabetic = _kind(word)
        spoken += count * is_word
        letters += count * is_word * len(word)
        alphabetic += count * is_alphabetic
    lines = text.splitlines()
    bullets = sum(line.lstrip().startswith(("•", "-")) for line in lines)
    ellipses = sum(line.rstrip().endswith(_ELLIPSES) for line in lines)
    stop_words = sum(word in counts for word in settings.gopher_stop_words)
    mean = letters / max(spoken, 1)
    checks = (
        ("gopher_few_words", spoken < settings.gopher_min_words),
        ("gopher_many_words", spoken > settings.gopher_max_words),
        ("gopher_short_words", mean < settings.gopher_min_word_length),
        ("gopher_long_words", mean > settings.gopher_max_word_length),
        ("gopher_hashes", text.count("#") / len(words) > settings.gopher_max_symbols),
        ("gopher_ellipses", sum(map(text.count, _ELLIPSES)) / len(words) > settings.gopher_max_symbols),
        ("gopher_bullet_lines", bullets / len(lines) > settings.gopher_max_bullet_lines),
        ("gopher_ellipsis_lines", ellipses / len(lines) > settings.gopher_max_ellipsis_lines),
        ("gopher_non_alphabetic", alphabetic / len(words) < settings.gopher_min_alphabetic_words),
        ("gopher_stop_words", stop_words < settings.gopher_min_stop_words),
    )
    return next((rule for rule, breaks in checks if breaks), "")


def apply_c4(lines: list[str], found: Counter[str], settings: QualitySettings) -> tuple[list[str], str]:
    """The lines that C4's rules keep, and the rule that drops the document, or ""."""
    rules = settings.c4_rules
    whole = "\n".join(lines).lower()
    rare = "{" in whole or any(map(whole.__contains__, ("lorem ipsum", "javascript", *_POLICY)))
    kept, sentences = [], 0
    for line in lines:
        line = line.strip()
        words = line.split()
        if len(line) > settings.c4_max_word_length and max(map(len, words)) > settings.c4_max_word_length:
            found["c4_line_long_word"] += 1
            continue
        if "citations" in rules and "[" in line:
            line, marks = _CITATION.subn("", line)
            if marks:
                found["c4_citations"] += marks
        if "punctuation" in rules and (not line.endswith(_C4_END) or line.endswith("...")):
            found["c4_line_punctuation"] += 1
            continue
        if len(words) < settings.c4_min_line_words:
            found["c4_line_few_words"] += 1
            continue
        if rare:
            lower = line.lower()
            if "lorem_ipsum" in rules and "lorem ipsum" in lower:
                return lines, "c4_lorem_ipsum"
            if "javascript" in rules and "javascript" in lower:
                found["c4_line_javascript"] += 1
                continue
            if "curly_bracket" in rules and "{" in lower:
                return lines, "c4_curly_bracket"
            if "policy" in rules and any(phrase in lower for phrase in _POLICY):
                found["c4_line_policy"] += 1
                continue
        if sentences < settings.c4_min_sentences:
            sentences += count_sentences(line)
        if line := line.strip():
            kept.append(line)
    if sentences < settings.c4_min_sentences or not kept:
        return lines, "c4_few_sentences"
    return kept, ""


def fineweb_rule(lines: list[str], words: list[str] | None, settings: QualitySettings) -> str:
    """The rule of FineWeb's on lines that drops a document, or ""; `words` is the document's if they are known."""
    characters = sum(map(len, lines))
    if sum(map(bool, map(_ends_in_terminal, lines))) / len(lines) < settings.fineweb_min_punctuated_lines:
        return "fineweb_unpunctuated_lines"
    short = sum(len(line) <= settings.fineweb_short_line for line in lines)
    if short / len(lines) > settings.fineweb_max_short_lines:
        return "fineweb_short_lines"
    if repetition.repeated_lines(lines)[1] / characters > settings.fineweb_max_repeated_characters:
        return "fineweb_repeated_lines"
    count = len(split_words("\n".join(lines))) if words is None else len(words)
    if (len(lines) - 1) / count > settings.fineweb_max_lines_per_word:
        return "fineweb_many_lines"
    return ""


def count_sentences(line: str) -> int:
    """Sentences of a line: one ends before the first word after a full stop or the like (spaCy's Sentencizer).

    More white space than one blank is a word there, so ".   .   ." has three and ". . ." has one.
    """
    sentences, ended = 1, False
    for part in _WIDE_SPACE.split(line.strip()):
        if ended:
            sentences, ended = sentences + 1, False
        for word in split_words(part):
            if _is_terminal(word):
                ended = True
            elif ended and not _is_punctuation(word):
                sentences, ended = sentences + 1, False
    return sentences


@functools.lru_cache(maxsize=1 << 16)
def _kind(word: str) -> tuple[bool, bool]:
    """Return whether it is a word, not symbols alone; whether it has a letter."""
    if word.isascii():
        return not _is_symbols(word), any(map(str.isalpha, word))
    return not _is_symbols(word), any(unicodedata2.category(character)[0] == "L" for character in word)


@functools.lru_cache(maxsize=1 << 12)
def _is_punctuation(word: str) -> bool:
    return all(unicodedata2.category(character)[0] == "P" for character in word)
