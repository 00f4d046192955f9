"""Runs of sentences compared with fairseq's rules (TokenBlockDataset, break modes `complete_doc` and `none`)."""

from hypothesis import given
from hypothesis import strategies as st

from bert_keras.data.masking import MaskingSettings
from components.pretrain_example_gen.instances import plan_passes
from components.pretrain_example_gen.sentence_blocks import choose_blocks
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


@given(documents_strategy, st.integers(5, 40))
def test_cut_sentences_fill_all_blocks_of_a_document_but_the_last(documents, longest):
    expected, end = [], 0
    for document in documents:
        start, end = end, end + sum(document)
        expected += [(at, min(at + longest, end)) for at in range(start, end, longest)]
    assert choose_blocks(make_bucket(documents), longest, cut_sentences=True).tolist() == expected


def test_a_long_sentence_is_cut_without_a_separator_within():
    masking = MaskingSettings(max_predictions_per_seq=2)
    settings = ExampleSettings(max_seq_length=9, objective="full_sentences", cut_sentences=True, masking=masking)
    (plan,) = plan_passes(make_bucket([[20, 2], [1]]), settings, 1, ("key",), sep_id=-1)
    rows = sorted((row["a_start"], row["a_length"]) for row in plan.instances)
    assert rows == [(0, 8), (8, 8), (16, 8), (24, 3)] and plan.cut_segments == 0
    # After each sentence, and one more between the documents.
    assert [place for place, token in enumerate(plan.tokens) if token == -1] == [20, 23, 24, 26]
