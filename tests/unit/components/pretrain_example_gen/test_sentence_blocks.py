"""Runs of whole sentences compared with fairseq's rule (TokenBlockDataset, break mode `complete_doc`)."""

from hypothesis import given
from hypothesis import strategies as st

from components.pretrain_example_gen.sentence_blocks import choose_blocks
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
    assert choose_blocks(make_bucket(documents), longest).tolist() == blocks_of(documents, longest)


def test_a_block_may_be_filled_to_the_last_token():
    assert choose_blocks(make_bucket([[3, 4, 5, 7, 1], [2]]), 12).tolist() == [(0, 12), (12, 20), (20, 22)]
