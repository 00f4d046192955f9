"""Divides documents into segments: lines or sentences."""

from __future__ import annotations

from components.corpus_gen.settings import CorpusSettings

# The sentence splitter's time grows faster than the text (quadratically for Chinese), so it gets pieces.
SPLITTER_CHARACTERS = 4096


def segment(lines: list[str], settings: CorpusSettings) -> list[str]:
    """Segments of one document: its lines, or its sentences."""
    if settings.segments == "lines":
        return lines
    from sentencex import segment as split

    text, start = " ".join(lines), 0
    segments: list[str] = []
    while len(text) - start > SPLITTER_CHARACTERS:
        piece = text[start : start + SPLITTER_CHARACTERS]
        sentences = list(split(settings.language, piece))
        if len(sentences) > 1:
            # The last sentence may continue in the next piece.
            sentences.pop()
        else:
            # A sentence without an end is cut at a blank.
            sentences = [piece[: piece.rfind(" ", 1) + 1 or len(piece)]]
        segments += sentences
        start += sum(map(len, sentences))
    segments += split(settings.language, text[start:])
    return [s for s in (s.strip() for s in segments) if s]
