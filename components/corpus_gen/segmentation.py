"""Divides documents into segments: lines or sentences."""

from __future__ import annotations

from components.corpus_gen.settings import CorpusSettings

# The sentence splitter's time grows faster than the text (quadratically for Chinese), so it gets pieces.
SPLITTER_CHARACTERS = 4096


def segment(lines: list[str], settings: CorpusSettings) -> list[str]:
    """Segments of one document: its lines, or its sentences."""
    if settings.segments == "lines":
        return lines
    segments = sentences(" ".join(lines), settings.language)
    return [s for s in (s.strip() for s in segments) if s]


def sentences(text: str, language: str) -> list[str]:
    """Sentences of a text with the blanks around them: together they are the text."""
    from sentencex import segment as split

    start, found = 0, []
    while len(text) - start > SPLITTER_CHARACTERS:
        piece = text[start : start + SPLITTER_CHARACTERS]
        some = list(split(language, piece))
        if len(some) > 1:
            # The last sentence may continue in the next piece.
            some.pop()
        else:
            # A sentence without an end is cut at a blank.
            some = [piece[: piece.rfind(" ", 1) + 1 or len(piece)]]
        found += some
        start += sum(map(len, some))
    return [*found, *split(language, text[start:])]
