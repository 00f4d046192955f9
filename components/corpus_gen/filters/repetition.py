"""Gopher's rules on repeated lines and word sequences (Rae et al. 2021, table A1).

Decisions are those of datatrove's `GopherRepetitionFilter`. Its two rules on paragraphs have no counterpart: a document
here has no blank lines.
"""

from collections import Counter
from itertools import accumulate

from components.corpus_gen.settings import QualitySettings

_TOP_SIZES, _REPEATED_SIZES = (2, 3, 4), (5, 6, 7, 8, 9, 10)
RULES = {
    "gopher_repeated_lines": f"a share of lines that occur before above {QualitySettings.repetition_max_lines}",
    "gopher_repeated_line_characters": (
        f"a share of characters in lines that occur before above {QualitySettings.repetition_max_line_characters}"
    ),
    **{
        f"gopher_top_{size}_gram": (
            f"the most frequent sequence of {size} words has a larger share of the characters than "
            "corpus.quality.repetition_max_top_ngrams"
        )
        for size in _TOP_SIZES
    },
    **{
        f"gopher_repeated_{size}_grams": (
            f"sequences of {size} words that occur before have a larger share of the characters than "
            "corpus.quality.repetition_max_repeated_ngrams"
        )
        for size in _REPEATED_SIZES
    },
}


def repeated_lines(lines: list[str]) -> tuple[int, int]:
    """Number of lines that occur before, and of their characters (datatrove's `find_duplicates`)."""
    distinct = set(lines)
    repeated = len(lines) - len(distinct)
    return repeated, sum(map(len, lines)) - sum(map(len, distinct)) if repeated else 0


def repetition_of_lines(lines: list[str], characters: int, settings: QualitySettings) -> str:
    """The rule of RULES on lines that drops a document, or ""; `characters` counts line ends too."""
    repeated, repeated_characters = repeated_lines(lines)
    if repeated / len(lines) > settings.repetition_max_lines:
        return "gopher_repeated_lines"
    if repeated_characters / characters > settings.repetition_max_line_characters:
        return "gopher_repeated_line_characters"
    return ""


def repetition_of_words(words: list[str], characters: int, settings: QualitySettings) -> str:
    """The rule of RULES on sequences of words that drops a document, or ""; `characters` counts blanks too."""
    longest, most = max(map(len, words), default=0), len(words)
    for size, limit in zip(_TOP_SIZES, settings.repetition_max_top_ngrams, strict=True):
        # A sequence is no more frequent than a shorter one in it: most documents are cleared without counting.
        if len(words) < size or most * (size * longest + size - 1) <= limit * characters:
            continue
        counts = Counter(zip(*(words[start:] for start in range(size)), strict=False))
        top = max(counts, key=counts.__getitem__)
        most = counts[top]
        if most * (sum(map(len, top)) + size - 1) / characters > limit:
            return f"gopher_top_{size}_gram"
    # Sequences are compared without blanks between their words, as datatrove does.
    text, offsets = "".join(words), [0, *accumulate(map(len, words))]
    for size, limit in zip(_REPEATED_SIZES, settings.repetition_max_repeated_ngrams, strict=True):
        sequences = [text[start:end] for start, end in zip(offsets, offsets[size:], strict=False)]
        distinct = set(sequences)
        if len(distinct) == len(sequences):
            break  # nor does any longer sequence occur twice
        # Overlapping sequences are counted here, so this is an upper bound of what `_repeated_characters` finds.
        if (sum(map(len, sequences)) - sum(map(len, distinct))) / characters <= limit:
            continue
        if _repeated_characters(sequences, size) / characters > limit:
            return f"gopher_repeated_{size}_grams"
    return ""


def _repeated_characters(sequences: list[str], size: int) -> int:
    """Characters of sequences that occur before and do not overlap (datatrove's `find_all_duplicate`)."""
    seen: set[str] = set()
    characters, start = 0, 0
    while start < len(sequences):
        if (sequence := sequences[start]) in seen:
            characters += len(sequence)
            start += size
        else:
            seen.add(sequence)
            start += 1
    return characters
