"""Pairs of `nsp=balanced`: half of them are random, within one point; none is from the same document."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.pretrain_example_gen.sentence_pairs import PAIR, choose_pairs
from tests.support.examples.numbered_documents import (
    document_of,
    documents_strategy,
    example_settings,
    make_bucket,
    uniforms,
)

NEVER = 0.999  # a draw that decides "with probability p" against


def choose_balanced(documents, max_num_tokens=125, short_seq_prob=0.0, seed=0):
    bucket = make_bucket(documents)
    return bucket, choose_pairs(
        bucket, example_settings(max_num_tokens, short_seq_prob, nsp="balanced"), uniforms(seed)
    )


@given(documents_strategy, st.integers(2, 60), st.sampled_from([0.0, 0.3]), st.integers(0, 10**6))
def test_balanced_pairs_match_their_labels(documents, max_num_tokens, short_seq_prob, seed):
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
    # All text is used once: each pair starts where the previous one ended, at A's end if random, else at B's.
    ends = np.where(is_random, pairs["a_end"], pairs["b_end"])
    assert np.array_equal(pairs["a_start"], [0, *ends[:-1]])
    assert ends[-1] == len(bucket.tokens)


@given(
    st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=12), min_size=2, max_size=30),
    st.integers(2, 60),
    st.integers(0, 10**6),
)
def test_balanced_kinds_differ_by_two_at_most_without_documents_of_one_sentence(documents, max_num_tokens, seed):
    """A drawn one, and one more for the last sentence of the document, which is put back."""
    _, pairs = choose_balanced(documents, max_num_tokens, seed=seed)
    assert -1 <= (2 * pairs["is_random_next"] - 1).sum() <= 2


@pytest.mark.parametrize("sentence", [(5, 40), (90, 200)])
@pytest.mark.parametrize("of_one_sentence", [0.0, 0.3])
def test_half_of_balanced_pairs_are_random(sentence, of_one_sentence):
    """Including sentences longer than an example, for which the original makes only random pairs."""
    rng = np.random.default_rng(6)
    sizes = np.where(rng.random(600) < of_one_sentence, 1, rng.integers(2, 30, 600))
    documents = [rng.integers(*sentence, size).tolist() for size in sizes]
    bucket, pairs = choose_balanced(documents, short_seq_prob=0.1)
    assert abs(pairs["is_random_next"].mean() - 0.5) < 0.01
    reference = choose_pairs(bucket, example_settings(short_seq_prob=0.1), uniforms(0))
    assert reference["is_random_next"].mean() > 0.53
    # The kind does not depend on the position: many first pairs are of either kind.
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


def test_balanced_single_document_has_only_real_pairs_and_uses_all_sentences():
    # Chunks: 3 + 3; 3 alone reaches the target but takes another; the last one is added to it.
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
    # One sentence is random without a draw; then a real pair is due, of two sentences; then they are even again.
    assert chosen.tolist() == [(0, 9, 36, 40, 1), (9, 18, 18, 27, 0), (27, 36, 36, 40, 1), (36, 40, 0, 9, 1)]
