"""Tokenized documents: omitted, cut and separated segments."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from components.pretrain_example_gen import tokenized_shard as bucket_module
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


def test_no_documents():
    bucket = Bucket.from_documents([], BertTokenizer(TOKENS, lower_case=True))
    assert bucket.segment_splits.tolist() == bucket.document_splits.tolist() == [0]
    for changed in (bucket.cut_segments(5)[0], bucket.with_separators(3, across_documents=True)):
        assert documents_of(changed) == []


def test_more_than_31_bits_of_tokens_are_refused(monkeypatch):
    monkeypatch.setattr(bucket_module, "MAX_TOKENS", 5)
    make_bucket([[5]])
    with pytest.raises(ValueError, match="6 tokens in a shard; the maximum is 5: make more shards"):
        make_bucket([[6]])


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
def test_every_sentence_ends_with_a_separator(documents):
    bucket = make_bucket(documents)
    separated = bucket.with_separators(SEP, across_documents=False)
    assert documents_of(separated) == [[[*s, SEP] for s in document] for document in documents_of(bucket)]
    assert separated.tokens.dtype == np.int32


@given(documents_strategy.filter(len))
def test_another_separator_is_inserted_between_documents(documents):
    bucket = make_bucket(documents)
    (joined,) = documents_of(bucket.with_separators(SEP, across_documents=True))
    expected = []
    for document in documents_of(bucket):
        expected += [[SEP]] if expected else []
        expected += [[*segment, SEP] for segment in document]
    assert joined == expected


def test_random_streams_depend_only_on_their_key():
    def first(*key):
        return random_stream(*key).random()

    assert first(1, "train", "b", "pass", 0) == first(1, "train", "b", "pass", 0)
    keys = itertools.product((1, 2), ("train", "eval"), ("a", "b"), ("pass",), (0, 1))
    assert len({first(*key) for key in keys}) == 16
