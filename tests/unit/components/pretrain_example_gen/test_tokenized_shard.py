"""Tokenized documents, and values derived from the settings."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.data.example_format import ExampleLayout
from bert_keras.data.masking import MaskingSettings
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.tokenized_shard import Bucket, random_stream
from tests.support.examples.numbered_documents import make_bucket

TOKENS = [*SPECIAL_TOKENS, "my", "dog", "!", "he", "dum", "##my"]
SEP = -1

documents_strategy = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), max_size=5)


def documents_of(bucket):
    """Tokens of each segment of each document."""
    segments = [bucket.tokens[a:b].tolist() for a, b in itertools.pairwise(bucket.segment_splits)]
    return [segments[a:b] for a, b in itertools.pairwise(bucket.document_splits)]


def test_segments_without_tokens_are_omitted():
    tokenizer = BertTokenizer(TOKENS, lower_case=True)
    documents = [["my dog", "\u200b", "dummy !"], [], ["\u200b"], ["he"]]
    bucket = Bucket.from_documents(documents, tokenizer)
    assert [TOKENS[i] for i in bucket.tokens] == ["my", "dog", "dum", "##my", "!", "he"]
    assert bucket.segment_splits.tolist() == [0, 2, 5, 6]
    assert bucket.document_splits.tolist() == [0, 2, 3]
    assert (bucket.num_documents, bucket.num_segments) == (2, 3)


@given(documents_strategy, st.integers(1, 15))
def test_cut_segments_have_maximum_length_and_lose_nothing(documents, longest):
    bucket = make_bucket(documents)
    cut, number = bucket.cut_segments(longest)
    expected = [
        [segment[at : at + longest] for segment in document for at in range(0, len(segment), longest)]
        for document in documents_of(bucket)
    ]
    assert documents_of(cut) == expected
    assert number == sum(length > longest for document in documents for length in document)


@given(documents_strategy)
def test_every_sentence_ends_with_a_separator_and_documents_with_another(documents):
    bucket = make_bucket(documents)
    separated = bucket.with_separators(SEP, across_documents=False)
    expected = [[[*segment, SEP] for segment in document] for document in documents_of(bucket)]
    assert documents_of(separated) == expected and separated.tokens.dtype == np.int32
    if documents:
        (joined,) = documents_of(bucket.with_separators(SEP, across_documents=True))
        assert joined == [*expected[0], *(segment for document in expected[1:] for segment in ([SEP], *document))]


def test_random_streams_depend_only_on_their_key():
    def first(*key):
        return random_stream(*key).random()

    assert first(1, "train", "b", "pass", 0) == first(1, "train", "b", "pass", 0)
    keys = itertools.product((1, 2), ("train", "eval"), ("a", "b"), ("pass",), (0, 1))
    assert len({first(*key) for key in keys}) == 16


DYNAMIC = MaskingSettings(when="dynamic")


@pytest.mark.parametrize(
    "settings",
    [
        {"max_seq_length": 5, "masking": MaskingSettings(max_predictions_per_seq=5)},
        {"max_seq_length": 65_536, "dupe_factor": 1000},
        {"short_seq_prob": 1.0, "packing": True, "max_sequences_per_pack": 255},
        {"packing": True, "max_sequences_per_pack": 2, "objective": "doc_sentences"},
    ],
)
def test_limits_are_allowed(settings):
    ExampleSettings(**settings)


def test_layout():
    assert ExampleSettings().layout == ExampleLayout.bert(128, 20)
    packed = ExampleSettings(objective="segment_pair", packing=True, masking=DYNAMIC).layout
    # 15 % of 128 tokens, rounded up, and one for each of the sequences.
    assert packed == ExampleLayout("segment_pair", 128, 20 + 3, 3, "dynamic")
    # The larger share of both splits.
    more = ExampleSettings(objective="segment_pair", packing=True, masking=MaskingSettings(held_out_prob=0.3))
    assert more.layout.max_predictions_per_seq == 39 + 3


@pytest.mark.parametrize(
    ("objective", "when", "masks", "passes"),
    [
        ("mlm_nsp", "static", (True, True), 7),
        ("mlm_nsp", "dynamic", (False, True), 7),  # other pairs
        ("segment_pair", "dynamic", (False, True), 7),
        ("doc_sentences", "static", (True, True), 7),  # other masks
        ("doc_sentences", "dynamic", (False, True), 1),
        ("full_sentences", "dynamic", (False, True), 1),
        ("left_to_right", "static", (False, False), 1),
    ],
)
def test_masks_are_stored_and_passes_made_where_they_differ(objective, when, masks, passes):
    """Of the training and of the held-out examples; held-out documents are read once."""
    settings = ExampleSettings(objective=objective, dupe_factor=7, masking=MaskingSettings(when=when))
    assert (settings.masks("train"), settings.masks("eval")) == masks
    assert (settings.passes("train"), settings.passes("eval")) == (passes, 1)
