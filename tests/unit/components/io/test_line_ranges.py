"""Byte ranges of a file of lines: each line belongs to exactly one range, wherever the file is divided."""

import csv
import io
import itertools

import hypothesis
import pytest
from hypothesis import strategies

from components.io.line_ranges import lines_between

LINES = strategies.lists(strategies.text("ab é,\r\x85\u2028", max_size=8), max_size=8).map("\n".join)
RECORDS = strategies.lists(strategies.lists(strategies.text('a"\n, é', max_size=6), min_size=2, max_size=2), max_size=6)


def of_ranges(content, cuts, quoted):
    edges = [0, *sorted(cuts), None]
    for start, end in itertools.pairwise(edges):
        yield from lines_between(io.BytesIO(content), start, end, quoted)


def positions(lines):
    return [sum(map(len, lines[:number])) for number in range(len(lines))]


@hypothesis.given(LINES, strategies.sets(strategies.integers(1, 60)))
def test_ranges_have_each_line_once(text, cuts):
    lines = io.BytesIO(text.encode()).readlines()
    assert list(of_ranges(text.encode(), cuts, False)) == list(zip(positions(lines), lines, strict=True))


@hypothesis.given(RECORDS, strategies.sets(strategies.integers(1, 80)))
def test_a_line_feed_between_quotes_ends_no_record(records, cuts):
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(records)
    found = list(of_ranges(file.getvalue().encode(), cuts, True))
    assert [next(csv.reader(io.StringIO(line.decode(), newline=""))) for _, line in found] == records
    assert [position for position, _ in found] == positions([line for _, line in found])


@pytest.mark.parametrize("start", range(1, 10))
def test_the_first_byte_decides(start):
    """Of two lines at bytes 0 and 4, the second is in the range only if the range begins at 4 or before."""
    found = list(lines_between(io.BytesIO(b"abc\ndef\n"), start))
    assert found == ([(4, b"def\n")] if start <= 4 else [])
