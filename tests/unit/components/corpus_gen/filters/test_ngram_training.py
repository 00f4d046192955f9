"""The trained model equals that of lmplz, in golden/kenlm.arpa (test_ngram_model.py says how it was made)."""

from pathlib import Path

import numpy as np
import pytest

from components.corpus_gen.filters.ngram_model import read_arpa, sentence
from components.corpus_gen.filters.ngram_training import train

ARPA = Path(__file__).parent / "golden/kenlm.arpa"
TEXT = """\
The hare once boasted of her speed before the other animals, and said that she had never been beaten in a race.
The tortoise said quietly that he would run a race with her, and the hare said that it was a good joke.
The race began, and the hare was out of sight at once; but she soon stopped, and lay down to have a nap.
The tortoise went on and on, and when the hare woke from her nap, she saw him near the end of the race.
The hare ran as fast as she could, but the tortoise had won the race before she was there.
A crow that was very thirsty saw a jar, and flew to it with joy; but the water in it was very low.
The crow took a stone and let it fall into the jar, and then another stone, and then another one.
At last the water came to the top of the jar, and the crow was able to drink, and was not thirsty any more.
A dog had a bone, and was on its way home with it, and saw another dog with a bone in the water.
The dog let the bone fall to have the other one as well, and had none, as it was its own image in the water.
""".splitlines()


def trained(lines, order):
    return train(np.array([word for line in lines for word in sentence(line)], np.uint64), order)


def test_the_model_is_that_of_lmplz():
    ours, theirs = trained(TEXT, 3).levels, read_arpa(str(ARPA)).levels
    assert len(ours) == len(theirs) == 3
    for level, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(level.keys, expected.keys)
        np.testing.assert_allclose(level.log_probs, expected.log_probs, atol=1e-6)
        np.testing.assert_allclose(level.backoffs, expected.backoffs, atol=1e-6)


@pytest.mark.parametrize("order", [2, 3, 5])
def test_after_any_words_the_probabilities_add_up_to_one(order):
    model = trained(TEXT, order)
    begin, *_ = sentence("")
    words = model.levels[0].keys
    for before in ("", "the", "of the", "and the crow was", "the hare ran as fast as she", "zebra", "the zebra"):
        given = sentence(before)[:-1]
        after = [10 ** model.log_probs(np.array([*given, word], np.uint64))[-1] for word in words if word != begin]
        assert sum(after) == pytest.approx(1, abs=1e-5), before


def test_small_texts_have_a_model():
    for lines in ([""], ["one"], ["one", "one"], ["!"] * 9):
        model = trained(lines, 5)
        assert 1 < model.perplexity(["a b"]) < 100
        assert model.perplexity(lines) < model.perplexity(["x"])


def test_the_order_of_lines_does_not_matter():
    assert trained(TEXT, 3).to_bytes() == trained(TEXT[::-1], 3).to_bytes()
