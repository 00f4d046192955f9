"""Plans and examples of every objective; tokens of documents are numbered from 100, so a token shows its position."""

import dataclasses
import itertools
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bert_keras.data.masking import MaskingSettings
from components.pretrain_example_gen import instances
from components.pretrain_example_gen.instances import (
    INSTANCE,
    fill_instances,
    instance_lengths,
    key_of_pass,
    make_examples,
    plan_passes,
)
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.tokenized_shard import Bucket
from tests.support.examples import numbered_documents
from tests.support.examples.numbered_documents import documents_strategy

PAD, UNK, CLS, SEP, MASK, FIRST = 0, 1, 2, 3, 4, 100
OBJECTIVES = ("mlm_nsp", "segment_pair", "full_sentences", "doc_sentences", "single_sequence", "left_to_right")


def make_bucket(documents):
    """`documents`: segment lengths of each document."""
    bucket = numbered_documents.make_bucket(documents)
    return dataclasses.replace(bucket, tokens=bucket.tokens + FIRST)


def make_tokenizer(size):
    return types.SimpleNamespace(
        vocabulary=[str(i) for i in range(size)],
        is_suffix=np.zeros(size, bool),
        words_stand_alone=True,
        pair_separators=1,
        has_segments=True,
        at_begin=None,
        pad_id=PAD,
        unk_id=UNK,
        cls_id=CLS,
        sep_id=SEP,
        mask_id=MASK,
    )


def example_settings(max_seq_length=128, when="static", **changes):
    masking = MaskingSettings(max_predictions_per_seq=min(20, max_seq_length), when=when)
    return ExampleSettings(max_seq_length=max_seq_length, masking=masking, **changes)


def make(bucket, settings, split="train", passes=1, key=(1,)):
    """The plan, all examples in one, and the fingerprints, for all passes in order."""
    plans = list(plan_passes(bucket, settings, passes, key, SEP))
    tokenizer = make_tokenizer(FIRST + len(bucket.tokens))
    made = [
        block
        for number, plan in enumerate(plans)
        for block in make_examples(plan, tokenizer, settings, split, key_of_pass(key, number))
    ]
    blocks, fingerprints = zip(*made, strict=True)
    return (
        dataclasses.replace(plans[0], instances=np.concatenate([plan.instances for plan in plans])),
        {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]},
        np.concatenate(fingerprints),
    )


def restore(examples):
    """input_ids before masking."""
    input_ids = examples["input_ids"].copy()
    if "masked_lm_weights" in examples:
        rows, slots = np.nonzero(examples["masked_lm_weights"])
        input_ids[rows, examples["masked_lm_positions"][rows, slots]] = examples["masked_lm_ids"][rows, slots]
    return input_ids


def sequences_of(examples):
    """Tokens before masking and segment ids of each sequence, packed or not; sorted."""
    input_ids = restore(examples)
    sequence_ids = examples.get("sequence_ids", examples["input_mask"])
    return sorted(
        (input_ids[row, own].tolist(), examples["segment_ids"][row, own].tolist())
        for row, numbers in enumerate(sequence_ids)
        for number in range(1, numbers.max() + 1)
        for own in [numbers == number]
    )


def texts_of(examples):
    """Tokens of each row before masking, without padding."""
    return [ids[mask == 1].tolist() for ids, mask in zip(restore(examples), examples["input_mask"], strict=True)]


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS = [*SPECIAL, "my", "dog", "is", "##ok", "!", "he", "likes", "play", "dum", "##my"]


def fill(plan, separated=False):
    text = [TOKENS.index(t) for t in ["dum", "##my", "my", "dog", "is", "##ok", "!", "he", "likes", "play"]]
    chosen = np.array([(*instance, False, False) for instance in plan], INSTANCE)
    filled = fill_instances(np.array(text, np.int32), chosen, 16, make_tokenizer(len(TOKENS)), separated=separated)
    shown = [" ".join(TOKENS[i] for i in ids).replace(" [PAD]", "") for ids in filled["input_ids"]]
    return shown, filled


def test_worked_examples_of_the_format():
    """Worked examples of `bert_keras.data.example_format`, before masking."""
    shown, filled = fill([(2, 5, 7, 3), (2, 5, 7, 0), (2, 8, 2, 0), (0, 1, 1, 1)])
    assert shown == [
        "[CLS] my dog is ##ok ! [SEP] he likes play [SEP]",
        "[CLS] my dog is ##ok ! [SEP]",
        "[CLS] my dog is ##ok ! he likes play [SEP]",
        "[CLS] dum [SEP] ##my [SEP]",
    ]
    lengths = [(11, 7), (7, 7), (10, 10), (5, 3)]
    assert filled["input_mask"].tolist() == [[1] * n + [0] * (16 - n) for n, _ in lengths]
    assert filled["segment_ids"].tolist() == [[0] * a + [1] * (n - a) + [0] * (16 - n) for n, a in lengths]
    shown, filled = fill([(2, 5, 7, 0)], separated=True)
    assert shown == ["[CLS] my dog is ##ok !"]
    assert filled["input_mask"].tolist() == [[1] * 6 + [0] * 10]
    assert not filled["segment_ids"].any()


@pytest.mark.parametrize("objective", ["mlm_nsp", "segment_pair"])
@hypothesis_settings(max_examples=50)
@given(documents=documents_strategy, T=st.integers(5, 60), seed=st.integers(0, 1000))
def test_pairs_are_filled_from_their_ranges_in_all_passes(objective, documents, T, seed):
    """`segment_pair` has no B where a chunk is a single segment."""
    settings = example_settings(T, objective=objective, short_seq_prob=0.5)
    plan, examples, _ = make(make_bucket(documents), settings, passes=2, key=(seed,))
    if objective == "mlm_nsp":
        assert examples["next_sentence_labels"][:, 0].tolist() == plan.instances["is_random_next"].tolist()
        assert plan.instances["b_length"].all()
    for text, segment_ids, instance in zip(texts_of(examples), examples["segment_ids"], plan.instances, strict=True):
        a = list(range(FIRST + instance["a_start"], FIRST + instance["a_start"] + instance["a_length"]))
        b = list(range(FIRST + instance["b_start"], FIRST + instance["b_start"] + instance["b_length"]))
        after = [*b, SEP] if b else []
        assert a and text == [CLS, *a, SEP, *after]
        longest = T if b else T - 1  # without the separator after B
        assert len(text) == longest if instance["truncated"] else len(text) <= longest
        assert segment_ids.tolist() == [0] * (len(a) + 2) + [1] * len(after) + [0] * (T - len(text))


def sentences_of(documents, longest):
    """Tokens of each sentence of each document, with long sentences cut."""
    numbers = itertools.count(FIRST)
    cut = []
    for document in documents:
        tokens = [[next(numbers) for _ in range(length)] for length in document]
        cut.append([s[at : at + longest] for s in tokens for at in range(0, len(s), longest)])
    return cut


def as_many_as_fit(sentences, room):
    """Fill blocks of at most `room` tokens with one sentence after another."""
    blocks = [[]]
    for sentence in sentences:
        if len(blocks[-1]) + len(sentence) > room:
            blocks.append([])
        blocks[-1] = blocks[-1] + sentence
    return blocks


def full_sentences(documents, T):
    """Blocks of [CLS] and T - 1 tokens; each sentence ends with a separator, and another one separates documents."""
    stream = []
    for document in documents:
        stream += [[SEP]] if stream else []
        stream += [[*sentence, SEP] for sentence in document]
    return [[CLS, *block] for block in as_many_as_fit(stream, T - 1)]


def doc_sentences(documents, T):
    """The same; no block crosses documents."""
    return [block for document in documents for block in full_sentences([document], T)]


def single_sequence(documents, T):
    """[CLS] x [SEP], no longer than T, within documents."""
    return [[CLS, *block, SEP] for document in documents for block in as_many_as_fit(document, T - 2)]


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("full_sentences", full_sentences),
        ("doc_sentences", doc_sentences),
        ("single_sequence", single_sequence),
        ("left_to_right", single_sequence),
    ],
)
@hypothesis_settings(max_examples=50)
@given(documents=documents_strategy, T=st.integers(5, 60))
def test_blocks_have_as_many_sentences_as_fit(objective, expected, documents, T):
    """Sentences too long for an example, which the original would drop, are cut."""
    plan, examples, _ = make(make_bucket(documents), example_settings(T, objective=objective))
    assert sorted(texts_of(examples)) == sorted(expected(sentences_of(documents, T - 2), T))
    assert not examples["segment_ids"].any()
    assert plan.cut_segments == sum(length > T - 2 for document in documents for length in document)


@hypothesis_settings(max_examples=30)
@pytest.mark.parametrize("objective", [objective for objective in OBJECTIVES if objective != "full_sentences"])
@given(documents=documents_strategy, T=st.integers(5, 60), seed=st.integers(0, 1000))
def test_packed_rows_contain_the_unpacked_sequences(objective, documents, T, seed):
    bucket = make_bucket(documents)
    plan, unpacked, fingerprints = make(bucket, example_settings(T, objective=objective), passes=2, key=(seed,))
    _, packed, packed_fingerprints = make(
        bucket, example_settings(T, objective=objective, packing=True), passes=2, key=(seed,)
    )
    assert sequences_of(packed) == sequences_of(unpacked)
    assert sorted(packed_fingerprints) == sorted(fingerprints)
    assert len(packed["input_ids"]) <= len(unpacked["input_ids"])
    assert instance_lengths(plan).tolist() == unpacked["input_mask"].sum(1).tolist()
    if objective == "mlm_nsp":
        assert packed["next_sentence_labels"].sum() == unpacked["next_sentence_labels"].sum()


def test_packed_rows_are_shuffled():
    """Packing begins with the longest sequences, but the order of rows is random."""
    rng = np.random.default_rng(0)
    documents = [[int(length)] for length in rng.integers(1, 30, 3000)]
    _, examples, _ = make(make_bucket(documents), example_settings(32, objective="single_sequence", packing=True))
    first = (examples["sequence_ids"] == 1).sum(1)
    assert abs(np.corrcoef(first, np.arange(len(first)))[0, 1]) < 0.1


def test_packed_sequences_have_their_own_budget_of_predictions():
    """Per sequence (create_masked_lm_predictions): 10 tokens give 2 of 1.5, so a row of three has 6, not 4 of 4.5."""
    settings = example_settings(32, objective="single_sequence", packing=True)
    _, examples, _ = make(make_bucket([[8]] * 30), settings)
    assert examples["masked_lm_weights"].sum(1).tolist() == [6] * 10
    for row in range(10):
        owners = examples["sequence_ids"][row, examples["masked_lm_positions"][row, :6]]
        assert np.bincount(owners).tolist() == [0, 2, 2, 2]


def test_passes_differ_and_are_shuffled():
    bucket, settings = make_bucket([[10] * 50] * 20), example_settings(short_seq_prob=0.0)
    one, four = (
        [plan.instances for plan in plan_passes(bucket, settings, passes, (1, "train"), SEP)] for passes in (1, 4)
    )
    # A pass does not depend on the number of passes.
    assert one[0].tobytes() == four[0].tobytes()
    assert sum(map(len, four)) == pytest.approx(4 * len(one[0]), rel=0.1)
    for instances_of_pass in four:
        quarter = instances_of_pass[: len(instances_of_pass) // 4]
        assert abs(quarter["a_start"].mean() - 5000) < 2000
        assert (np.diff(instances_of_pass["a_start"]) < 0).mean() == pytest.approx(0.5, abs=0.15)
    # Passes differ.
    assert len({instance[:4] for passed in four for instance in passed.tolist()}) > 3 * len(one[0])


def test_a_plan_depends_on_its_key():
    bucket = make_bucket([[10] * 50] * 20)
    keys = [(1, "train", "a"), (1, "train", "a"), (2, "train", "a"), (1, "eval", "a"), (1, "train", "b")]
    plans = [next(plan_passes(bucket, example_settings(), 1, key, SEP)).instances.tobytes() for key in keys]
    assert plans[0] == plans[1]
    assert len(set(plans)) == 4


def test_passes_of_sentence_blocks_differ_only_in_masks():
    settings = example_settings(64, objective="doc_sentences")
    _, examples, _ = make(make_bucket([[10] * 50] * 20), settings, passes=2)
    texts = texts_of(examples)
    assert sorted(texts) == sorted([*map(list, set(map(tuple, texts)))] * 2)
    assert len({tuple(ids) for ids in examples["input_ids"].tolist()}) == len(texts)


def test_no_documents():
    bucket = Bucket(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64))
    for objective, packing in itertools.product(OBJECTIVES, (False, True)):
        if objective == "full_sentences" and packing:
            continue
        settings = example_settings(objective=objective, packing=packing)
        for plan in plan_passes(bucket, settings, 3, (1,), SEP):
            assert plan.instances.shape == (0,)
            assert list(make_examples(plan, make_tokenizer(200), settings, "train", (1,))) == []


def test_fingerprints_are_equal_for_equal_tokens():
    """Two documents have the same tokens."""
    tokens = np.array([5, 6, 7, 8, 5, 6, 7, 9, 5, 6, 7, 8, 5, 6], np.int32)
    bucket = Bucket(tokens, np.array([0, 4, 8, 12, 14]), np.arange(5))
    settings = example_settings(16, objective="doc_sentences")
    (plan,) = plan_passes(bucket, settings, 1, (1,), SEP)
    tokenizer = make_tokenizer(200)
    ((_, fingerprints),) = make_examples(plan, tokenizer, settings, "train", (1,))
    same = {}
    for start, fingerprint in zip(plan.instances["a_start"].tolist(), fingerprints, strict=True):
        same.setdefault(int(fingerprint), set()).add(start)
    # Documents 0 and 2 start at 0 and 10, after a separator is added to each.
    assert sorted(map(sorted, same.values())) == [[0, 10], [5], [15]]


def test_fingerprints_do_not_depend_on_the_block(monkeypatch):
    bucket, settings = make_bucket([[10] * 50] * 20), example_settings(64)
    _, _, expected = make(bucket, settings)
    monkeypatch.setattr(instances, "BLOCK", 7)
    _, _, fingerprints = make(bucket, settings)
    assert np.array_equal(fingerprints, expected)
    assert len(set(expected.tolist())) == len(expected)
