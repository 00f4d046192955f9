"""Cut sentences, byte-level BPE, and what only held-out examples have: masks and groups of documents."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.data.example_format import DOCUMENT_GROUP, DOCUMENT_GROUPS, DOCUMENT_PARTS
from bert_keras.data.masking import MaskingSettings
from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS, ByteBpeTokenizer, byte_alphabet, text_of
from components.pretrain_example_gen.instances import choose_blocks, make_examples, plan_passes
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.tokenized_shard import Bucket
from tests.unit.components.pretrain_example_gen.test_instances import (
    FIRST,
    OBJECTIVES,
    example_settings,
    make,
    make_bucket,
    restore,
)

documents_strategy = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=12), max_size=5)


def blocks_of(documents, longest):
    """Fill blocks sentence by sentence: a block ends when the next sentence does not fit, and with its document."""
    blocks, at = [], 0
    for document in documents:
        start = at
        for length in document:
            if at + length - start > longest:
                blocks.append((start, at))
                start = at
            at += length
        blocks.append((start, at))
    return blocks


@given(documents_strategy, st.integers(12, 40))
def test_cut_sentences_fill_the_same_blocks_with_what_follows(documents, longest):
    ends = np.cumsum([sum(document) for document in documents])
    expected = [
        (start, min(start + longest, ends[np.searchsorted(ends, start, "right")]))
        for start, _ in blocks_of(documents, longest)
    ]
    assert choose_blocks(make_bucket(documents), longest, cut_sentences=True).tolist() == expected


def test_only_the_last_example_of_full_sentences_is_padded():
    masking = MaskingSettings(max_predictions_per_seq=2)
    settings = ExampleSettings(max_seq_length=9, objective="full_sentences", cut_sentences=True, masking=masking)
    (plan,) = plan_passes(make_bucket([[6, 2, 4], [1]]), settings, 1, ("key",), sep_id=-1)
    rows = sorted((row["a_start"], row["a_length"]) for row in plan.instances)
    # Sentences end at 7, 10, 15 and 18 with their separators; the separator between the documents is at 15.
    assert rows == [(0, 8), (7, 8), (15, 3)]


@pytest.mark.parametrize(("share", "expected"), [(0.15, {"train": 12, "eval": 6}), (0.0, {"train": 12, "eval": 12})])
@pytest.mark.parametrize("packing", [False, True])
def test_held_out_examples_may_have_a_share_of_masks_of_their_own(packing, share, expected):
    """Of 40 tokens with [CLS] and [SEP], 30 % are 12 and 15 % are 6."""
    settings = example_settings(40, objective="single_sequence", packing=packing)
    masking = dataclasses.replace(settings.masking, masked_lm_prob=0.3, held_out_prob=share)
    settings = dataclasses.replace(settings, masking=masking)
    for split in ("train", "eval"):
        _, examples, _ = make(make_bucket([[38]] * 30), settings, split)
        assert set(examples["masked_lm_weights"].sum(1)) == {expected[split]}


@pytest.mark.parametrize("packing", [False, True])
def test_sequences_of_byte_level_bpe(packing):
    """RoBERTa's pairs (fairseq, models/roberta/hub_interface.py, `encode`), of the tokens that running text has."""
    merges = [("h", "e"), ("T", "he"), ("Ġ", "The"), ("o", "g"), ("d", "og"), ("Ġ", "dog")]
    vocabulary = [*SPECIAL_TOKENS, *byte_alphabet(), *("".join(pair) for pair in merges)]
    tokenizer = ByteBpeTokenizer(vocabulary, merges)

    def sequences(objective, documents, max_seq_length=64):
        settings = example_settings(max_seq_length, objective=objective, packing=packing, short_seq_prob=0.0)
        bucket = Bucket.from_documents(documents, tokenizer, separated=objective == "doc_sentences")
        for plan in plan_passes(bucket, settings, 1, (1,), tokenizer.sep_id, tokenizer.pair_separators):
            for features, _ in make_examples(plan, tokenizer, settings, "train", (1,)):
                assert not features["segment_ids"].any()
                for ids, mask in zip(restore(features), features["input_mask"], strict=True):
                    text = text_of("".join(vocabulary[i] for i in ids[mask == 1]))
                    yield from [f"<s>{one}" for one in text.split("<s>")[1:]]

    documents = [["The dog.", "The dog", "我。", "我", "dog"], ["The"]]
    assert {*sequences("single_sequence", documents)} == {"<s>The dog. The dog 我。我dog</s>", "<s>The</s>"}
    assert "<s>The dog.</s>The dog</s>我。</s>我</s>dog</s>" in {*sequences("doc_sentences", documents)}
    assert {*sequences("single_sequence", [["The dog.", "dog", "The"]], 6)} == {"<s>The dog. dog</s>", "<s>The</s>"}
    documents = [["The dog.", "dog The dog"[: 3 + 4 * (number % 3)]] for number in range(60)]
    pairs = {*sequences("segment_pair", documents, 18)}
    assert pairs == {f"<s>The dog.</s></s>{second}</s>" for second in ("dog", "dog The", "dog The dog")}
    long = [["The" + " dog" * 8, "dog" + " The" * 8]]
    assert all(pair.endswith("</s>") and pair.count("</s>") == 3 for pair in sequences("segment_pair", long, 16))


@pytest.mark.parametrize(
    ("objective", "packing"),
    [(of, False) for of in (*OBJECTIVES, "mlm_sop")] + [("mlm_nsp", True), ("doc_sentences", True)],
)
def test_held_out_rows_of_a_group_have_documents_of_their_own(objective, packing):
    """Of 20 documents each is a group; of 1,000 three or four adjacent ones, or more if rows are packed."""
    rng = np.random.default_rng(3)
    settings = example_settings(32, objective=objective, packing=packing)
    for count in (20, 1000):
        documents = [rng.integers(1, 15, rng.integers(1, 9)).tolist() for _ in range(count)]
        bucket = make_bucket(documents)
        starts = bucket.segment_splits[bucket.document_splits[:-1]] + FIRST
        _, examples, _ = make(bucket, settings, "eval")
        ids, firsts = restore(examples), examples["segment_ids"] == 0
        groups_of: list[set[int]] = [set() for _ in documents]
        for row, group in enumerate(examples[DOCUMENT_GROUP][:, 0]):
            tokens = ids[row][firsts[row] & (ids[row] >= FIRST)]
            # A row of full sentences belongs to the document that it begins in.
            tokens = tokens[:1] if objective == "full_sentences" else tokens
            for document in np.searchsorted(starts, tokens, side="right") - 1:
                groups_of[document].add(int(group))
        groups = [group for groups in groups_of for group in groups]
        assert all(len(groups) < 2 for groups in groups_of) and not any(group % DOCUMENT_PARTS for group in groups)
        sizes = sorted(Counter(groups).values())
        assert sizes[-1] == 1 if count == 20 else 3 <= sizes[-1] <= (1000 // 32 + 1 if packing else 4)


@pytest.mark.parametrize("documents", [1, 3])
def test_few_documents_are_cut_into_parts(documents):
    bucket = make_bucket([[10] * 80] * documents)
    _, examples, _ = make(bucket, example_settings(32, objective="doc_sentences"), "eval")
    places = restore(examples)[:, 1] - FIRST
    group = examples[DOCUMENT_GROUP][:, 0]
    expected = places // 800 * DOCUMENT_PARTS + places % 800 // 200
    assert ((group - group[places.argmin()]) % (DOCUMENT_GROUPS * DOCUMENT_PARTS) == expected).all()
