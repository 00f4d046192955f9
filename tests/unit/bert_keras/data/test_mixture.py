"""Which source each example of a mixture is from; no TensorFlow."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from bert_keras.data.example_format import Shard
from bert_keras.data.mixture import (
    Source,
    choices,
    examples_by_source,
    parse_numbers,
    source_rates,
    with_weights,
)
from bert_keras.errors import InputError


def first_choices(weights, first, count):
    return np.concatenate([*itertools.islice(choices(weights, first), -(-count // 4096))])[:count]


def test_the_example_of_the_module():
    assert first_choices([2, 3], 0, 8).tolist() == [1, 1, 0, 1, 0, 1, 1, 0]


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.37, 0.05, 0.999])
def test_of_two_sources_the_first_has_the_floor_of_its_share(share):
    """The formula of replay: floor(n share) of the first n examples."""
    numbers = np.concatenate([np.arange(5000), np.arange(10**9, 10**9 + 5000)])
    assert examples_by_source([share, 1 - share], numbers)[0].tolist() == [
        math.floor(n * share) for n in numbers.tolist()
    ]


@pytest.mark.parametrize("weights", [[1], [0.7, 0.2, 0.1], [5, 1, 1, 1, 900], [1e-6, 1, 3, 7.5, 2, 1 / 3]])
def test_every_stretch_has_the_share_of_each_source(weights):
    """Each example is from one source, and no source is further from its share than the number of those before it."""
    counts = examples_by_source(weights, np.arange(20_001))
    assert set(np.diff(counts).ravel().tolist()) <= {0, 1} and (counts.sum(0) == np.arange(20_001)).all()
    shares = np.array(weights) / sum(weights)
    behind = np.abs(counts - shares[:, None] * np.arange(20_001)).max(1)
    assert (behind <= [max(1, index) for index in range(len(weights))]).all()


@pytest.mark.parametrize("first", [1, 4095, 4096, 123_457])
def test_a_stream_from_an_example_on_is_the_rest_of_the_whole(first):
    weights = [0.5, 0.3, 0.2]
    assert first_choices(weights, first, 5000).tolist() == first_choices(weights, 0, first + 5000)[first:].tolist()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("wiki", "'wiki' must be NAME:NUMBER"),
        ("wiki:many", "'wiki:many' must be NAME:NUMBER"),
        ("wiki:0", "'wiki:0' must be"),
        ("wiki:-1", "'wiki:-1' must be NAME:NUMBER, the number above 0, as in wiki:3,books:1"),
        ("wiki:inf", "'wiki:inf' must be"),
        ("Wiki:1", "'Wiki:1' must be"),
        ("books:2", "'books:2' comes twice"),
    ],
)
def test_a_number_that_is_none_is_refused(text, problem):
    with pytest.raises(ValueError, match=f"training.source_weights: {problem}"):
        parse_numbers(["books:1", text], "training.source_weights")


def source(name, *records):
    return Source(name, [Shard(f"{name}{n}", n, count, 0, "", name) for n, count in enumerate(records)])


def weights_of(sources, weights=None):
    return {s.name: Fraction(s.weight).limit_denominator(1000) for s in with_weights(sources, weights or {})}


def test_weights_are_relative_to_each_other():
    sources = [source("books", 10), source("web", 900, 900)]
    for given in ({"books": 3, "web": 1}, {"books": 0.75, "web": 0.25}):
        assert weights_of(sources, given) == {"books": Fraction(3, 4), "web": Fraction(1, 4)}


def test_without_weights_a_source_counts_by_its_text():
    """900 examples a pass, of several passes, beside 100: nine tenths."""
    sources = [source("books", 100), source("web", 900, 900)]
    assert weights_of(sources) == {"books": Fraction(1, 10), "web": Fraction(9, 10)}


@pytest.mark.parametrize(
    ("power", "shares"),
    # 16, 81 and 256 sentences: of 353 by size; 4 + 9 + 16 = 29 with 1/2, 2 + 3 + 4 = 9 with 1/4 (XLM-R's p_i, arXiv
    # 1911.02116, section 3.1); all alike with 0.
    [(1.0, (16, 81, 256)), (0.5, (4, 9, 16)), (0.25, (2, 3, 4)), (0.0, (1, 1, 1))],
)
def test_weights_by_size_to_a_power(power, shares):
    sizes = {"sw": 16, "ur": 81, "en": 256}
    rates = source_rates(sizes, power)
    assert rates["en"] == 1.0
    # As many examples as sentences.
    sources = [source(name, size)._replace(weight=rates[name]) for name, size in sizes.items()]
    assert weights_of(sources) == {name: Fraction(n, sum(shares)) for name, n in zip(sizes, shares, strict=True)}


def test_given_weights_come_before_rates():
    sources = [source("books", 10)._replace(weight=8.0), source("web", 10)]
    assert weights_of(sources, {"books": 1, "web": 1}) == {"books": Fraction(1, 2), "web": Fraction(1, 2)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"books": 1}, "source_weights: web has no number; the sources are books, web"),
        ({"books": 1, "web": 1, "wiki": 1}, "source_weights: wiki is no source of the examples"),
    ],
)
def test_a_source_without_weight_and_a_weight_without_source_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        weights_of([source("books", 10), source("web", 10)], given)


def test_weights_need_names():
    with pytest.raises(InputError, match="wiki is no source of the examples; the sources have no names"):
        weights_of([source("", 10)], {"wiki": 1})


def test_a_source_without_examples_is_refused_by_name():
    with pytest.raises(InputError, match="source books: no examples could be made of its text"):
        weights_of([source("books", 0), source("web", 10)])
