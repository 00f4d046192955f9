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

    start, whole = 0, []
    while len(text) - start > SPLITTER_CHARACTERS:
        piece = text[start : start + SPLITTER_CHARACTERS]
        complete = list(split(language, piece))
        if len(complete) > 1:
            # The last sentence may continue in the next piece.
            complete.pop()
        else:
            # A sentence without an end is cut at a blank.
            complete = [piece[: piece.rfind(" ", 1) + 1 or len(piece)]]
        whole += complete
        start += sum(map(len, complete))
    return [*whole, *split(language, text[start:])]
