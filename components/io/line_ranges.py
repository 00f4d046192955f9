"""Lines of byte ranges of a file, so that several workers read one file."""

from collections.abc import Iterator
from typing import BinaryIO

_BLOCK_BYTES = 1 << 20


def lines_between(
    file: BinaryIO, start: int = 0, end: int | None = None, quoted: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield (position, content) of each line that begins in bytes [start, end); content ends with its line feed.

    With `quoted` a line feed between double quotes belongs to the line, as in CSV (RFC 4180). All bytes before `start`
    are read then: their number of quotes tells whether `start` is between quotes. The file is at its beginning.
    """
    inside, position = False, start
    if start:
        position = start - 1
        if quoted:
            inside = _quotes_before(file, position) % 2 == 1
        else:
            file.seek(position)
        # The end of a line begun earlier is not read as a whole: it may be gigabytes, over many ranges.
        while block := file.readline(_BLOCK_BYTES):
            position += len(block)
            inside ^= quoted and block.count(b'"') % 2 == 1
            if block.endswith(b"\n") and not inside:
                break
            if end is not None and position >= end:
                return
    lines: list[bytes] = []
    for line in iter(file.readline, b""):
        if not lines and end is not None and position >= end:
            return
        lines.append(line)
        inside ^= quoted and line.count(b'"') % 2 == 1
        if not inside:
            content = b"".join(lines)
            yield position, content
            position += len(content)
            lines = []
    if lines:  # a quote that nothing closes
        yield position, b"".join(lines)


def _quotes_before(file: BinaryIO, position: int) -> int:
    quotes = 0
    while position > 0 and (block := file.read(min(position, _BLOCK_BYTES))):
        quotes += block.count(b'"')
        position -= len(block)
    return quotes
