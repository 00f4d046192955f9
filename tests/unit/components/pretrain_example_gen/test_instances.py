"""Planning and filling against FACTS D1.1 to D1.8; most documents are of numbered tokens: token i is i."""

import itertools
import os
import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_keras.masking import MaskingSettings
from bert_keras.tokenizer import BertTokenizer
from components.pretrain_example_gen.instances import (
    INSTANCE,
    Bucket,
    choose_pairs,
    fill_instances,
    plan_instances,
    random_stream,
    truncate_pairs,
)
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


def example_settings(max_num_tokens=125, short_seq_prob=0.0):
    return ExampleSettings(
        max_seq_length=max_num_tokens + 3,
        short_seq_prob=short_seq_prob,
        masking=MaskingSettings(max_predictions_per_seq=1),
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
                pairs.append((a[0], a[-1] + 1, b[0], b[-1] + 1, int(is_random), 0))
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
    assert pairs.tolist()[:2] == [(0, 3, 3, 6, 0, 0), (6, 9, 9, 12, 0, 0)]


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
    assert pairs.tolist() == [(0, 9, 16, 23, 1, 0), (9, 16, 16, 23, 0, 0)]


def test_d1_4_more_than_half_are_random():
    rng = np.random.default_rng(3)
    bucket = make_bucket([rng.integers(5, 40, 30).tolist() for _ in range(300)])
    pairs = choose_pairs(bucket, example_settings(), uniforms(3))
    assert 0.5 < pairs["is_random_next"].mean() < 0.6


def test_d1_5_after_ten_tries_the_same_document_is_random_still():
    bucket = make_bucket([[4], [4]])
    draws = iter([NEVER, *[0.0] * 10, 0.0, NEVER, *[0.6] * 9, 0.0, 0.0])
    assert choose_pairs(bucket, example_settings(4), draws).tolist() == [
        (0, 4, 0, 4, 1, 0),
        (4, 8, 0, 4, 1, 0),
    ]
    assert next(draws, None) is None


def test_d1_5_a_bucket_of_one_document_draws_from_itself():
    pairs = choose_pairs(make_bucket([[5, 5, 5]]), example_settings(8), uniforms(0))
    assert pairs["is_random_next"].any()
    assert pairs["b_end"].max() <= 15


def test_d1_6_b_has_a_segment_even_if_a_fills_the_target():
    # A: 50 tokens of 10 wanted. B: one segment, though none is wanted.
    pairs = choose_pairs(make_bucket([[50], [3, 3]]), example_settings(10), iter([NEVER, NEVER, 0.0, *[NEVER] * 9]))
    assert pairs.tolist()[0] == (0, 50, 50, 53, 1, 0)


def test_d1_6_b_ends_with_the_segment_that_reaches_its_target():
    # A: 4 of 10 tokens; 6 wanted: 3 + 2 + 2.
    bucket = make_bucket([[4, 6], [3, 2, 2, 2]])
    pairs = choose_pairs(bucket, example_settings(10), iter([NEVER, 0.0, ALWAYS, NEVER, 0.0, *[NEVER] * 40]))
    assert pairs.tolist()[0] == (0, 4, 10, 17, 1, 0)


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
    pairs = np.array([(100, 100 + a, 200, 200 + b, 0, 0) for a, b in lengths], INSTANCE)
    truncate_pairs(pairs, limit, np.random.default_rng(0))
    after = list(zip(pairs["a_end"] - pairs["a_start"], pairs["b_end"] - pairs["b_start"], strict=True))
    assert after == [one_token_at_a_time(a, b, limit) for a, b in lengths]
    assert pairs["dropped"].tolist() == [sum(before) - sum(now) for before, now in zip(lengths, after, strict=True)]
    for (a, b), pair in zip(lengths, pairs, strict=True):
        assert 100 <= pair["a_start"] < pair["a_end"] <= 100 + a
        assert 200 <= pair["b_start"] < pair["b_end"] <= 200 + b


def test_d1_8_front_and_back_are_equally_likely_for_each_token():
    pairs = np.array([(0, 12, 100, 112, 0, 0)] * 40_000, INSTANCE)
    truncate_pairs(pairs, 20, np.random.default_rng(0))
    # 2 tokens off each: none, one or both at the front.
    for side, start in (("a_start", 0), ("b_start", 100)):
        counts = np.bincount(pairs[side] - start)
        assert np.abs(counts - np.array([10_000, 20_000, 10_000])).max() < 500


TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "my",
    "dog",
    "is",
    "##ok",
    "!",
    "he",
    "likes",
    "play",
    "dum",
    "##my",
]


def test_filled_like_the_format_s_worked_example():
    """The example of `bert_keras.features`, before masking."""
    ids = {token: number for number, token in enumerate(TOKENS)}
    text = np.array([ids[t] for t in ["dum", "##my", "my", "dog", "is", "##ok", "!", "he", "likes", "play"]], np.int32)
    plan = np.array([(2, 7, 7, 10, 0, 0)], INSTANCE)
    filled = fill_instances(text, plan, 16, cls_id=2, sep_id=3, pad_id=0)
    shown = " ".join(TOKENS[i] for i in filled["input_ids"][0])
    assert shown == "[CLS] my dog is ##ok ! [SEP] he likes play [SEP] [PAD] [PAD] [PAD] [PAD] [PAD]"
    assert filled["input_mask"].tolist() == [[1] * 11 + [0] * 5]
    assert filled["segment_ids"].tolist() == [[0] * 7 + [1] * 4 + [0] * 5]


@given(documents_strategy, st.integers(2, 60), st.integers(0, 1000))
def test_filled_instances_hold_their_ranges(documents, max_num_tokens, seed):
    bucket = make_bucket(documents)
    settings_ = example_settings(max_num_tokens, short_seq_prob=0.5)
    plan = plan_instances(bucket, settings_, 2, (seed,))
    cls_id, sep_id, pad_id = 10**6, 10**6 + 1, 10**6 + 2
    filled = fill_instances(bucket.tokens, plan, max_num_tokens + 3, cls_id=cls_id, sep_id=sep_id, pad_id=pad_id)
    for row, pair in enumerate(plan):
        a, b = range(pair["a_start"], pair["a_end"]), range(pair["b_start"], pair["b_end"])
        expected = [cls_id, *a, sep_id, *b, sep_id]
        padding = max_num_tokens + 3 - len(expected)
        assert len(a) >= 1 and len(b) >= 1 and padding >= 0
        assert filled["input_ids"][row].tolist() == expected + [pad_id] * padding
        assert filled["input_mask"][row].tolist() == [1] * len(expected) + [0] * padding
        assert filled["segment_ids"][row].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * padding


def test_plan_shuffles_all_passes_together():
    bucket = make_bucket([[10] * 50] * 20)
    plans = [plan_instances(bucket, example_settings(), passes, (1, "train", "bucket")) for passes in (1, 4)]
    assert len(plans[1]) == pytest.approx(4 * len(plans[0]), rel=0.1)
    # A pass is not affected by how many there are.
    assert set(plans[0].tolist()) <= set(plans[1].tolist())
    # Passes differ from each other.
    assert len(set(plans[1].tolist())) > 3 * len(plans[0])
    quarter = plans[1]["a_start"][: len(plans[1]) // 4]
    assert abs(quarter.mean() - 5000) < 1000
    assert (np.diff(plans[1]["a_start"]) < 0).mean() == pytest.approx(0.5, abs=0.1)


def test_streams_depend_on_their_whole_key_alone():
    def first(*key):
        return random_stream(*key).random()

    assert first(1, "train", "b", "pass", 0) == first(1, "train", "b", "pass", 0)
    keys = itertools.product((1, 2), ("train", "eval"), ("a", "b"), ("pass",), (0, 1))
    assert len({first(*key) for key in keys}) == 16


def test_bucket_leaves_out_what_has_no_token():
    tokenizer = BertTokenizer(TOKENS, lower_case=True)
    documents = [["my dog", "\u200b", "dummy !"], [], ["\u200b"], ["he"]]
    bucket = Bucket.from_documents(documents, tokenizer)
    assert [TOKENS[i] for i in bucket.tokens] == ["my", "dog", "dum", "##my", "!", "he"]
    assert bucket.segment_splits.tolist() == [0, 2, 5, 6]
    assert bucket.document_splits.tolist() == [0, 2, 3]


def test_bucket_without_documents():
    bucket = Bucket.from_documents([], BertTokenizer(TOKENS, lower_case=True))
    assert bucket.segment_splits.tolist() == bucket.document_splits.tolist() == [0]
    assert plan_instances(bucket, example_settings(), 3, (1,)).shape == (0,)


@pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is unset: no golden_pretraining")
def test_as_many_instances_as_the_original_makes():
    """Of the original's sample text, 5 passes: it made 60, 32 of them random."""
    data = pathlib.Path(os.environ["BERT_DATA_DIR"])
    text = (data / "golden_tokenization" / "google_bert_sample_text.txt").read_text(encoding="utf-8")
    documents = [document.splitlines() for document in text.strip().split("\n\n")]
    tokenizer = BertTokenizer.from_file(str(data / "vocab" / "bert-base-uncased-vocab.txt"), lower_case=True)
    bucket = Bucket.from_documents(documents, tokenizer)
    plans = [plan_instances(bucket, ExampleSettings(), 5, (seed,)) for seed in range(200)]
    made, random = (
        np.array(values) for values in zip(*((len(p), p["is_random_next"].sum()) for p in plans), strict=True)
    )
    assert abs(60 - made.mean()) < 3 * made.std()
    assert abs(32 - random.mean()) < 3 * random.std()
    lengths = np.concatenate([_lengths(p) for p in plans])
    # 33 of its 60 have all 125 tokens.
    assert abs(33 / 60 - (lengths == 125).mean()) < 3 * np.sqrt(0.25 / 60)
