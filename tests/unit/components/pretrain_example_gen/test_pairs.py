"""Pairs against FACTS D1.1 to D1.8, balanced ones, contiguous ones; documents are of numbered tokens: token i is i."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_keras.masking import MaskingSettings
from components.pretrain_example_gen.bucket import Bucket
from components.pretrain_example_gen.pairs import PAIR, choose_pairs, truncate_pairs
from components.pretrain_example_gen.settings import ExampleSettings

NEVER, ALWAYS = 0.999, 0.0  # draws that decide "with probability p" against and for


def make_bucket(documents):
    """`documents`: the segment lengths of each."""
    lengths = [length for document in documents for length in document]
    return Bucket(
        tokens=np.arange(sum(lengths), dtype=np.int32),
        segment_splits=np.cumsum([0, *lengths]),
        document_splits=np.cumsum([0, *map(len, documents)]),
    )


def uniforms(seed):
    rng = np.random.default_rng(seed)
    return iter(rng.random, None)


def example_settings(max_num_tokens=125, short_seq_prob=0.0, **changes):
    return ExampleSettings(
        max_seq_length=max_num_tokens + 3,
        short_seq_prob=short_seq_prob,
        masking=MaskingSettings(max_predictions_per_seq=1),
        **changes,
    )


def from_facts(documents, max_num_tokens, short_seq_prob, draws):
    """D1.1 to D1.7 and D1.16 on lists of tokens, one draw after the other: what `choose_pairs` must equal."""

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


documents_strategy = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=5)


@settings(max_examples=300)
@given(documents_strategy, st.integers(2, 60), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 10**6))
def test_pairs_equal_those_made_from_the_facts(documents, max_num_tokens, short_seq_prob, seed):
    """D1.1 to D1.7, in D1.16's order of draws: both end at the same random number."""
    numbers = itertools.count()
    tokens = [[[next(numbers) for _ in range(n)] for n in document] for document in documents]
    draws, expected_draws = uniforms(seed), uniforms(seed)
    expected = from_facts(tokens, max_num_tokens, short_seq_prob, expected_draws)
    pairs = choose_pairs(make_bucket(documents), example_settings(max_num_tokens, short_seq_prob), draws)
    assert pairs.tolist() == expected
    assert next(draws) == next(expected_draws)


def test_d1_1_target_is_drawn_once_a_document():
    """Segments of one token reach any target exactly, so the length of a full pair shows the target."""
    bucket = make_bucket([[1] * 300] * 400)
    pairs = choose_pairs(bucket, example_settings(20, short_seq_prob=1.0), uniforms(0))
    actual = pairs[pairs["is_random_next"] == 0]
    document = actual["a_start"] // 300
    targets = set()
    for number in range(400):
        # The last pair may be cut by the document's end.
        (target,) = set(_lengths(actual[(document == number) & (actual["b_end"] < (number + 1) * 300)]))
        targets.add(target)
    assert targets == set(range(2, 21))


def _lengths(pairs):
    return (pairs["a_end"] - pairs["a_start"] + pairs["b_end"] - pairs["b_start"]).tolist()


def test_d1_1_short_documents_are_a_share():
    bucket = make_bucket([[1] * 200] * 2000)
    pairs = choose_pairs(bucket, example_settings(100, short_seq_prob=0.1), uniforms(1))
    first = pairs[np.unique(pairs["a_start"] // 200, return_index=True)[1]]
    # B is filled up to the target even if random, but for the other document's end.
    short = (np.array(_lengths(first)) < 100) & (first["b_end"] % 200 != 0)
    assert abs(short.sum() / 2000 - 0.1) < 0.03


def test_d1_2_chunks_are_whole_segments_and_overshoot():
    # 3 + 3 reaches 5; forced: A is one segment, the next follows.
    pairs = choose_pairs(make_bucket([[3, 3, 3, 3, 2]]), example_settings(5), itertools.cycle([NEVER]))
    assert pairs.tolist()[:2] == [(0, 3, 3, 6, 0), (6, 9, 9, 12, 0)]


def test_d1_3_a_ends_at_any_segment_but_the_last():
    bucket = make_bucket([[1] * 6])
    ends = [
        choose_pairs(bucket, example_settings(6), iter([NEVER, u, NEVER]))["a_end"].item()
        for u in (0.0, 0.19, 0.21, 0.5, 0.99)
    ]
    assert ends == [1, 1, 2, 3, 5]


def test_d1_4_one_segment_is_random_without_a_draw():
    # Draws: short?, which document, which segment; and nothing for A's end and "random next?".
    bucket = make_bucket([[9], [7, 7]])
    draws = iter([NEVER, 0.6, 0.6, NEVER, NEVER, NEVER])
    pairs = choose_pairs(bucket, example_settings(9), draws)
    assert next(draws, None) is None
    assert pairs.tolist() == [(0, 9, 16, 23, 1), (9, 16, 16, 23, 0)]


def test_d1_4_more_than_half_are_random():
    rng = np.random.default_rng(3)
    bucket = make_bucket([rng.integers(5, 40, 30).tolist() for _ in range(300)])
    pairs = choose_pairs(bucket, example_settings(), uniforms(3))
    assert 0.5 < pairs["is_random_next"].mean() < 0.6


def test_d1_5_after_ten_tries_the_same_document_is_random_still():
    bucket = make_bucket([[4], [4]])
    draws = iter([NEVER, *[0.0] * 10, 0.0, NEVER, *[0.6] * 9, 0.0, 0.0])
    assert choose_pairs(bucket, example_settings(4), draws).tolist() == [
        (0, 4, 0, 4, 1),
        (4, 8, 0, 4, 1),
    ]
    assert next(draws, None) is None


def test_d1_5_a_bucket_of_one_document_draws_from_itself():
    pairs = choose_pairs(make_bucket([[5, 5, 5]]), example_settings(8), uniforms(0))
    assert pairs["is_random_next"].any()
    assert pairs["b_end"].max() <= 15


def test_d1_6_b_has_a_segment_even_if_a_fills_the_target():
    # A: 50 tokens of 10 wanted. B: one segment, though none is wanted.
    pairs = choose_pairs(make_bucket([[50], [3, 3]]), example_settings(10), iter([NEVER, NEVER, 0.0, *[NEVER] * 9]))
    assert pairs.tolist()[0] == (0, 50, 50, 53, 1)


def test_d1_6_b_ends_with_the_segment_that_reaches_its_target():
    # A: 4 of 10 tokens; 6 wanted: 3 + 2 + 2.
    bucket = make_bucket([[4, 6], [3, 2, 2, 2]])
    pairs = choose_pairs(bucket, example_settings(10), iter([NEVER, 0.0, ALWAYS, NEVER, 0.0, *[NEVER] * 40]))
    assert pairs.tolist()[0] == (0, 4, 10, 17, 1)


def test_d1_7_segments_that_a_random_pair_does_not_use_are_put_back():
    rng = np.random.default_rng(4)
    bucket = make_bucket([rng.integers(5, 40, 60).tolist() for _ in range(50)])
    pairs = choose_pairs(bucket, example_settings(), uniforms(4))
    # Each pair starts where the one before ended: at A's end if random, else at B's.
    ends = np.where(pairs["is_random_next"] == 1, pairs["a_end"], pairs["b_end"])
    assert np.array_equal(pairs["a_start"], [0, *ends[:-1]])
    assert ends[-1] == len(bucket.tokens)
    assert 1.34 < sum(_lengths(pairs)) / len(bucket.tokens) < 1.66


def one_token_at_a_time(a, b, limit):
    while a + b > limit:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@pytest.mark.parametrize("limit", [2, 7, 12])
def test_d1_8_lengths_after_truncation(limit):
    lengths = list(itertools.product(range(1, 25), repeat=2))
    pairs = np.array([(100, 100 + a, 200, 200 + b, 0) for a, b in lengths], PAIR)
    dropped = truncate_pairs(pairs, limit, np.random.default_rng(0))
    after = list(zip(pairs["a_end"] - pairs["a_start"], pairs["b_end"] - pairs["b_start"], strict=True))
    assert after == [one_token_at_a_time(a, b, limit) for a, b in lengths]
    assert dropped.tolist() == [sum(before) - sum(now) for before, now in zip(lengths, after, strict=True)]
    for (a, b), pair in zip(lengths, pairs, strict=True):
        assert 100 <= pair["a_start"] < pair["a_end"] <= 100 + a
        assert 200 <= pair["b_start"] < pair["b_end"] <= 200 + b


def test_d1_8_front_and_back_are_equally_likely_for_each_token():
    pairs = np.array([(0, 12, 100, 112, 0)] * 40_000, PAIR)
    truncate_pairs(pairs, 20, np.random.default_rng(0))
    # 2 tokens off each: none, one or both at the front.
    for side, start in (("a_start", 0), ("b_start", 100)):
        counts = np.bincount(pairs[side] - start)
        assert np.abs(counts - np.array([10_000, 20_000, 10_000])).max() < 500


# nsp=balanced


def document_of(bucket, places):
    document_starts = bucket.segment_splits[bucket.document_splits]
    return np.searchsorted(document_starts, places, side="right") - 1


def choose_balanced(documents, max_num_tokens=125, short_seq_prob=0.0, seed=0):
    bucket = make_bucket(documents)
    return bucket, choose_pairs(
        bucket, example_settings(max_num_tokens, short_seq_prob, nsp="balanced"), uniforms(seed)
    )


@settings(max_examples=300)
@given(documents_strategy, st.integers(2, 60), st.sampled_from([0.0, 0.3]), st.integers(0, 10**6))
def test_balanced_pairs_are_what_their_labels_say(documents, max_num_tokens, short_seq_prob, seed):
    bucket, pairs = choose_balanced(documents, max_num_tokens, short_seq_prob, seed)
    a_document, b_document = (document_of(bucket, pairs[name]) for name in ("a_start", "b_start"))
    is_random = pairs["is_random_next"] == 1
    assert (a_document != b_document)[is_random].all()
    assert np.array_equal(pairs["a_end"][~is_random], pairs["b_start"][~is_random])
    assert (a_document == b_document)[~is_random].all()
    assert (pairs["a_end"] > pairs["a_start"]).all() and (pairs["b_end"] > pairs["b_start"]).all()
    assert np.isin(np.concatenate([pairs[name] for name in PAIR.names[:4]]), bucket.segment_splits).all()
    assert np.array_equal(document_of(bucket, pairs["a_end"] - 1), a_document)
    assert np.array_equal(document_of(bucket, pairs["b_end"] - 1), b_document)
    if documents == [documents[0][:1]]:
        assert not len(pairs)
        return
    # All text is used once: each pair starts where the one before ended, at A's end if random, else at B's.
    ends = np.where(is_random, pairs["a_end"], pairs["b_end"])
    assert np.array_equal(pairs["a_start"], [0, *ends[:-1]])
    assert ends[-1] == len(bucket.tokens)


@given(
    st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=12), min_size=2, max_size=30),
    st.integers(2, 60),
    st.integers(0, 10**6),
)
def test_balanced_kinds_differ_by_two_at_most_without_documents_of_one_sentence(documents, max_num_tokens, seed):
    """One that is drawn, and one more for the last sentence of the document, which it puts back."""
    _, pairs = choose_balanced(documents, max_num_tokens, seed=seed)
    assert -1 <= (2 * pairs["is_random_next"] - 1).sum() <= 2


@pytest.mark.parametrize("sentence", [(5, 40), (90, 200)])
@pytest.mark.parametrize("of_one_sentence", [0.0, 0.3])
def test_balanced_is_half_within_one_point(sentence, of_one_sentence):
    """Sentences longer than an example too, of which the original makes every pair random."""
    rng = np.random.default_rng(6)
    sizes = np.where(rng.random(600) < of_one_sentence, 1, rng.integers(2, 30, 600))
    documents = [rng.integers(*sentence, size).tolist() for size in sizes]
    bucket, pairs = choose_balanced(documents, short_seq_prob=0.1)
    assert abs(pairs["is_random_next"].mean() - 0.5) < 0.01
    reference = choose_pairs(bucket, example_settings(short_seq_prob=0.1), uniforms(0))
    assert reference["is_random_next"].mean() > 0.53
    # Which kind comes is not told by the place: of first pairs, many are of either kind.
    first = pairs[np.unique(document_of(bucket, pairs["a_start"]), return_index=True)[1]]
    assert 0.3 < first["is_random_next"].mean() < 0.7


def test_balanced_documents_of_one_sentence_are_all_random():
    _, pairs = choose_balanced([[7]] * 50)
    assert pairs["is_random_next"].tolist() == [1] * 50


def test_balanced_draws_distractors_uniformly_from_the_other_documents():
    bucket, pairs = choose_balanced([[1]] * 4 * 500)
    other = document_of(bucket, pairs["b_start"]) - document_of(bucket, pairs["a_start"])
    assert abs(other.mean()) < 50 and other.min() < -1500 and other.max() > 1500
    seen = {
        (int(pair["a_start"]), int(pair["b_start"]))
        for seed in range(50)
        for pair in choose_balanced([[1]] * 3, seed=seed)[1]
    }
    assert seen == {(a, b) for a in range(3) for b in range(3) if a != b}


def test_balanced_one_document_has_real_pairs_alone_and_no_sentence_left_over():
    # Chunks: 3 + 3; 3 alone reaches 3, so it takes another; the last one goes with it.
    _, pairs = choose_balanced([[3, 3, 3, 3, 3]], max_num_tokens=5)
    assert pairs["is_random_next"].tolist() == [0, 0]
    assert pairs[["a_start", "b_end"]].tolist() == [(0, 6), (6, 15)]
    _, pairs = choose_balanced([[9, 9, 9]], max_num_tokens=5)
    assert pairs[["a_start", "b_end"]].tolist() == [(0, 27)]
    assert len(choose_balanced([[9]])[1]) == 0


def test_balanced_a_sentence_that_fills_an_example_takes_another_when_a_real_pair_is_due():
    # Draws: short?; a_end; random?; other; where in it; a_end of the next chunk.
    bucket = make_bucket([[9, 9, 9, 9], [4]])
    draws = iter([NEVER, NEVER, 0.0, *[NEVER] * 4, 0.0, 0.0])
    chosen = choose_pairs(bucket, example_settings(9, nsp="balanced"), draws)
    # One sentence is random without a draw; then a real pair is due: two sentences; then they are even again.
    assert chosen.tolist() == [(0, 9, 36, 40, 1), (9, 18, 18, 27, 0), (27, 36, 36, 40, 1), (36, 40, 0, 9, 1)]


# segment_pair


@settings(max_examples=200)
@given(documents_strategy, st.integers(2, 60), st.sampled_from([0.0, 0.3]), st.integers(0, 10**6))
def test_segment_pairs_cut_documents_into_chunks(documents, max_num_tokens, short_seq_prob, seed):
    """The chunks of D1.1 and D1.2; none is put back, and a segment alone has an empty B."""
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
        # The fewest whole segments that reach the target.
        chunk_lengths = chosen["b_end"] - chosen["a_start"]
        last_segment = chosen["b_end"] - bucket.segment_splits[segments[2] - 1]
        assert (chunk_lengths - last_segment < max_num_tokens).all()
        at_document_end = np.isin(chosen["b_end"], bucket.segment_splits[bucket.document_splits])
        assert ((chunk_lengths >= max_num_tokens) | at_document_end).all()


def test_segment_pair_worked_example():
    bucket = make_bucket([[3, 3, 3, 3, 2]])
    chosen = choose_pairs(bucket, example_settings(5, objective="segment_pair"), itertools.cycle([NEVER]))
    assert chosen.tolist() == [(0, 3, 3, 6, 0), (6, 9, 9, 12, 0), (12, 14, 14, 14, 0)]


def test_a_segment_alone_is_truncated_like_a_pair():
    chosen = np.array([(100, 140, 140, 140, 0)] * 1000, PAIR)
    dropped = truncate_pairs(chosen, 10, np.random.default_rng(0))
    assert dropped.tolist() == [30] * 1000
    assert set(chosen["a_end"] - chosen["a_start"]) == {10} and set(chosen["b_end"] - chosen["b_start"]) == {0}
    assert abs(chosen["a_start"].mean() - 115) < 1
