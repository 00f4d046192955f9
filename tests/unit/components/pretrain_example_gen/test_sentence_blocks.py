"""Runs of whole sentences compared with fairseq's rule (TokenBlockDataset, break mode `complete_doc`)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.data.masking import MaskingSettings
from components.pretrain_example_gen.instances import choose_blocks, plan_passes
from components.pretrain_example_gen.settings import ExampleSettings
from tests.support.examples.numbered_documents import make_bucket

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
def test_blocks_contain_as_many_sentences_as_fit(documents, longest):
    assert choose_blocks(make_bucket(documents), longest, cut_sentences=False).tolist() == blocks_of(documents, longest)


def test_a_block_may_be_filled_to_the_last_token():
    assert choose_blocks(make_bucket([[3, 4, 5, 7, 1], [2]]), 12, False).tolist() == [(0, 12), (12, 20), (20, 22)]


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
