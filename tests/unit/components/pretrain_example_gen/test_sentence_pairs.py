"""Pairs compared with the original's (create_pretraining_data.py), and contiguous ones; token i of the text is i."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.pretrain_example_gen.sentence_pairs import PAIR, choose_pairs, truncate_pairs
from tests.support.examples.numbered_documents import (
    document_of,
    documents_strategy,
    example_settings,
    make_bucket,
    uniforms,
)

NEVER, ALWAYS = 0.999, 0.0  # draws that decide "with probability p" against and for


def from_facts(documents, max_num_tokens, short_seq_prob, draws):
    """create_instances_from_document on lists of tokens, one draw after the other; `choose_pairs` must equal it."""

    def random():
        return next(draws)

    def randint(low, high):  # both included
        return low + int(next(draws) * (high - low + 1))

    pairs = []
    for index, document in enumerate(documents):
        target = max_num_tokens
        if random() < short_seq_prob:
            target = randint(2, max_num_tokens)
        chunk = []
        position = 0
        while position < len(document):
            chunk.append(document[position])
            if position == len(document) - 1 or sum(map(len, chunk)) >= target:
                a_end = randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
                a = [token for segment in chunk[:a_end] for token in segment]
                b = []
                is_random = len(chunk) == 1 or random() < 0.5
                if is_random:
                    for _ in range(10):
                        other = randint(0, len(documents) - 1)
                        if other != index:
                            break
                    for segment in documents[other][randint(0, len(documents[other]) - 1) :]:
                        b += segment
                        if len(b) >= target - len(a):
                            break
                    position -= len(chunk) - a_end
                else:
                    b = [token for segment in chunk[a_end:] for token in segment]
                pairs.append((a[0], a[-1] + 1, b[0], b[-1] + 1, int(is_random)))
                chunk = []
            position += 1
    return pairs


@given(documents_strategy, st.integers(2, 60), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 10**6))
def test_pairs_equal_the_originals(documents, max_num_tokens, short_seq_prob, seed):
    """With the original's order of draws: both end at the same random number."""
    numbers = itertools.count()
    tokens = [[[next(numbers) for _ in range(n)] for n in document] for document in documents]
    draws, expected_draws = uniforms(seed), uniforms(seed)
    expected = from_facts(tokens, max_num_tokens, short_seq_prob, expected_draws)
    pairs = choose_pairs(make_bucket(documents), example_settings(max_num_tokens, short_seq_prob), draws)
    assert pairs.tolist() == expected
    assert next(draws) == next(expected_draws)


def test_after_ten_tries_the_same_document_is_still_labelled_random():
    bucket = make_bucket([[4], [4]])
    draws = iter([NEVER, *[0.0] * 10, 0.0, NEVER, *[0.6] * 9, 0.0, 0.0])
    assert choose_pairs(bucket, example_settings(4), draws).tolist() == [(0, 4, 0, 4, 1), (4, 8, 0, 4, 1)]
    assert next(draws, None) is None


def one_token_at_a_time(a, b, limit):
    while a + b > limit:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@pytest.mark.parametrize("limit", [2, 7, 12])
def test_lengths_after_truncation(limit):
    lengths = list(itertools.product(range(1, 25), repeat=2))
    pairs = np.array([(100, 100 + a, 200, 200 + b, 0) for a, b in lengths], PAIR)
    dropped = truncate_pairs(pairs, limit, np.random.default_rng(0))
    after = list(zip(pairs["a_end"] - pairs["a_start"], pairs["b_end"] - pairs["b_start"], strict=True))
    assert after == [one_token_at_a_time(a, b, limit) for a, b in lengths]
    assert dropped.tolist() == [sum(before) - sum(now) for before, now in zip(lengths, after, strict=True)]
    for (a, b), pair in zip(lengths, pairs, strict=True):
        assert 100 <= pair["a_start"] < pair["a_end"] <= 100 + a
        assert 200 <= pair["b_start"] < pair["b_end"] <= 200 + b


def test_truncation_removes_tokens_from_front_and_back_equally_often():
    pairs = np.array([(0, 12, 100, 112, 0)] * 40_000, PAIR)
    truncate_pairs(pairs, 20, np.random.default_rng(0))
    # 2 tokens are removed from each: none, one or both at the front.
    for side, start in (("a_start", 0), ("b_start", 100)):
        counts = np.bincount(pairs[side] - start)
        assert np.abs(counts - np.array([10_000, 20_000, 10_000])).max() < 500


# segment_pair


@given(documents_strategy, st.integers(2, 60), st.sampled_from([0.0, 0.3]), st.integers(0, 10**6))
def test_segment_pairs_cut_documents_into_chunks(documents, max_num_tokens, short_seq_prob, seed):
    """The same chunks as for next-sentence pairs; none is put back, and B of a single segment is empty."""
    bucket = make_bucket(documents)
    chosen = choose_pairs(
        bucket, example_settings(max_num_tokens, short_seq_prob, objective="segment_pair"), uniforms(seed)
    )
    assert not chosen["is_random_next"].any()
    assert np.array_equal(chosen["a_end"], chosen["b_start"])
    assert np.array_equal(chosen["a_start"], [0, *chosen["b_end"][:-1]])
    assert chosen["b_end"][-1] == len(bucket.tokens)
    assert np.array_equal(document_of(bucket, chosen["a_start"]), document_of(bucket, chosen["b_end"] - 1))
    segments = [np.searchsorted(bucket.segment_splits, chosen[name]) for name in ("a_start", "a_end", "b_end")]
    assert (segments[1] > segments[0]).all()
    assert np.array_equal(segments[2] == segments[1], segments[2] - segments[0] == 1)
    if not short_seq_prob:
        # As few whole segments as reach the target.
        chunk_lengths = chosen["b_end"] - chosen["a_start"]
        last_segment = chosen["b_end"] - bucket.segment_splits[segments[2] - 1]
        assert (chunk_lengths - last_segment < max_num_tokens).all()
        at_document_end = np.isin(chosen["b_end"], bucket.segment_splits[bucket.document_splits])
        assert ((chunk_lengths >= max_num_tokens) | at_document_end).all()


def test_segment_pair_worked_example():
    bucket = make_bucket([[3, 3, 3, 3, 2]])
    chosen = choose_pairs(bucket, example_settings(5, objective="segment_pair"), itertools.cycle([NEVER]))
    assert chosen.tolist() == [(0, 3, 3, 6, 0), (6, 9, 9, 12, 0), (12, 14, 14, 14, 0)]


# mlm_sop


@given(documents_strategy, st.integers(2, 60), st.integers(0, 10**6))
def test_ordered_pairs_are_the_chunks_of_a_document_or_swapped(documents, max_num_tokens, seed):
    """A label of 0 for A before B, 1 for B before A; only a chunk of one segment gets a B of elsewhere, and a 1."""
    bucket = make_bucket(documents)
    chosen = choose_pairs(bucket, example_settings(max_num_tokens, 0.3, objective="mlm_sop"), uniforms(seed))
    alone = np.isin(chosen["a_start"], bucket.segment_splits[:-1]) & (
        np.searchsorted(bucket.segment_splits, chosen["a_end"])
        - np.searchsorted(bucket.segment_splits, chosen["a_start"])
        == 1
    )
    in_order = chosen["a_end"] == chosen["b_start"]
    swapped = chosen["b_end"] == chosen["a_start"]
    label = chosen["is_random_next"] == 1
    assert (in_order | swapped | alone).all()
    assert np.array_equal(label[~alone], swapped[~alone]) and in_order[~label].all()


def test_ordered_pairs_worked_example():
    """A document of five segments in chunks of two, two and one; the second chunk is swapped, the last has no B."""
    bucket = make_bucket([[3, 3, 3, 3, 2], [4]])
    draws = [NEVER, NEVER, NEVER, NEVER, ALWAYS]  # no short length; for each chunk: where A ends, whether to swap
    chosen = choose_pairs(
        bucket, example_settings(5, objective="mlm_sop"), itertools.chain(draws, itertools.repeat(NEVER))
    )
    assert chosen.tolist()[:3] == [(0, 3, 3, 6, 0), (9, 12, 6, 9, 1), (12, 14, 14, 18, 1)]


def test_half_of_the_chunks_are_swapped():
    bucket = make_bucket([[5] * 40] * 50)
    chosen = choose_pairs(bucket, example_settings(20, objective="mlm_sop"), uniforms(1))
    assert len(chosen) == 500 and abs(chosen["is_random_next"].mean() - 0.5) < 0.06


def test_a_segment_alone_is_truncated_like_a_pair():
    chosen = np.array([(100, 140, 140, 140, 0)] * 1000, PAIR)
    dropped = truncate_pairs(chosen, 10, np.random.default_rng(0))
    assert dropped.tolist() == [30] * 1000
    assert set(chosen["a_end"] - chosen["a_start"]) == {10} and set(chosen["b_end"] - chosen["b_start"]) == {0}
    assert abs(chosen["a_start"].mean() - 115) < 1
