"""Mixtures of sources of examples: which source each example of a stream is from.

Sources share a stream by their weights: the first takes part p = w_0 / (w_0 + w_1 + ...) of it, the second its part of
what is left, and so on. Of the first n examples the first source has floor(n p), as many as a line of slope p allows.
So the counts depend on n alone, and a run resumes exactly. After any number of examples the first source is off its
share by less than one example, the source of index k by at most k. Of weights 2 (a), 3 (b):

    n            0  1  2  3  4  5  6  7
    source       b  b  a  b  a  b  b  a
"""

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_keras.data.example_format import Shard
from bert_keras.errors import InputError

# The source of general text that is mixed in against forgetting (`--replay`).
REPLAY = "replay"
NAME = re.compile(r"[a-z][a-z0-9_]*")
_CHOICES_AT_A_TIME = 4096


class Source(NamedTuple):
    """Examples that share a stream with others.

    `name`: its name; "": the only source. `shards`: shards of all passes over its documents. `weight`: its weight
    beside the others', above 0; before `with_weights` its rate (`source_rates`).
    """

    name: str
    shards: Sequence[Shard]
    weight: float = 1.0

    @property
    def one_pass(self) -> int:
        """Number of examples of a pass over the documents."""
        return sum(shard.records for shard in self.shards if not shard.pass_number)


def split_name(pattern: str) -> tuple[str, str]:
    """Name and pattern of NAME=PATTERN, the name "" without one; an existing path has none, whatever its characters.

    >>> split_name("web=/text/*.txt"), split_name("/text/*.txt")
    (('web', '/text/*.txt'), ('', '/text/*.txt'))
    """
    name, equals, rest = pattern.partition("=")
    if not equals or not NAME.fullmatch(name) or os.path.exists(pattern):
        return "", pattern
    return name, rest


def examples_by_source(weights: Sequence[float], examples: np.ndarray | int) -> np.ndarray:
    """The numbers of the first `examples`, int [...], of a stream from each of S sources: int64 [S, ...].

    >>> examples_by_source([2, 3], np.array([2, 3, 5, 10])).tolist()
    [[0, 1, 2, 4], [2, 2, 3, 6]]
    """
    remaining, counts = np.asarray(examples, np.int64), []
    for index, weight in enumerate(weights[:-1]):
        counts.append(np.floor(remaining * (weight / sum(weights[index:]))).astype(np.int64))
        remaining = remaining - counts[-1]
    return np.stack([*counts, remaining])


def choices(weights: Sequence[float], first_example: int) -> Iterator[np.ndarray]:
    """The index of each example's source, from an example on, endless; int64 [some]."""
    for first in itertools.count(first_example, _CHOICES_AT_A_TIME):
        before = examples_by_source(weights, np.arange(first, first + _CHOICES_AT_A_TIME + 1))
        yield np.diff(before).argmax(0)


def parse_numbers(texts: Sequence[str], setting: str) -> dict[str, float]:
    """NAME:NUMBER of each source, as of `training.source_weights`, by name.

    ValueError: not of this form, a name that is none, that comes twice, or a number that is not above 0.
    """
    numbers: dict[str, float] = {}
    for text in texts:
        name, colon, number = text.strip().rpartition(":")
        try:
            value = float(number) if colon and NAME.fullmatch(name) else 0.0
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf") or name in numbers:
            problem = "comes twice" if value and name in numbers else "must be NAME:NUMBER, the number above 0"
            raise ValueError(f"{setting}: {text!r} {problem}, as in wiki:3,books:1")
        numbers[name] = value
    return numbers


def source_rates(sizes: Mapping[str, int], power: float) -> dict[str, float]:
    """The number of times that each source is read while the largest is read once.

    Read so, a source of n_i sentences (`sizes`) has n_i ** power beside the others' (arXiv 1911.02116, section 3.1).

    >>> source_rates({"en": 10_000, "sw": 100}, 0.5)
    {'en': 1.0, 'sw': 10.0}
    """
    largest = max(sizes.values())
    return {name: (largest / max(1, size)) ** (1.0 - power) for name, size in sizes.items()}


def check_names(names: Sequence[str], weights: Mapping[str, float]) -> None:
    """InputError for a source without a number, or a number without a source, of `training.source_weights`."""
    if weights and (wrong := sorted({*weights} - {*names}) or sorted({*names} - {*weights})):
        known = f"are {', '.join(names)}" if any(names) else "have no names: give --corpus NAME=GLOB"
        problem = "is no source of the examples" if wrong[0] in weights else "has no number"
        raise InputError(f"training.source_weights: {wrong[0]} {problem}; the sources {known}")


def with_weights(sources: Sequence[Source], weights: Mapping[str, float]) -> list[Source]:
    """The sources with their weights, which sum to 1.

    `weights`: numbers by name (`training.source_weights`), relative to each other; empty: text is read at the rates of
    the sources. InputError: a source without examples, without a number, or a number without source; names it.
    """
    check_names([source.name for source in sources], weights)
    if len(sources) > 1 and (empty := [source.name for source in sources if not source.one_pass]):
        raise InputError(f"source {empty[0]}: no examples could be made of its text; give more, or leave it out")
    numbers = weights or {source.name: source.one_pass * source.weight for source in sources}
    total = sum(numbers.values()) or 1.0
    return [source._replace(weight=numbers[source.name] / total) for source in sources]
