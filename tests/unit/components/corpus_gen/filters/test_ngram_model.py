"""Probabilities of KenLM 0.3.0, in golden/kenlm.json, under golden/kenlm.arpa.

That model is one of `lmplz -o 3 --discount_fallback --prune 0 0 1` on the lines of TEXT in test_ngram_training.py, as
`words_and_marks` splits them; the numbers are those of `kenlm.Model(...).full_scores(line)` for each of its words.
"""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from bert_keras.errors import InputError
from components.corpus_gen.filters.ngram_model import NgramModel, read_arpa, sentence

GOLDEN = Path(__file__).parent / "golden"
SCORES = json.loads((GOLDEN / "kenlm.json").read_text(encoding="utf-8"))
ARPA = r"""
\data\
ngram 1=4
ngram 2=2
ngram 3=1

\1-grams:
-99	<s>	-0.3
-0.9	</s>
-1.2	<unk>
-0.5	the	-0.25

\2-grams:
-0.1	<s> the	-0.125
-0.2	the the

\3-grams:
-0.0625	<s> the the

\end\
"""


@pytest.fixture
def read(tmp_path):
    """`read(content)` reads it as an ARPA file."""

    def read(content):
        (tmp_path / "model.arpa").write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_arpa(str(tmp_path / "model.arpa"))

    return read


def log_probs(model, line):
    return model.log_probs(np.array(sentence(line), np.uint64))[1:]


@pytest.mark.parametrize("line", SCORES, ids=range(len(SCORES)))
def test_probabilities_are_those_of_kenlm(line):
    np.testing.assert_allclose(log_probs(read_arpa(str(GOLDEN / "kenlm.arpa")), line), SCORES[line], atol=1e-6)


def test_probabilities_by_hand(read):
    model = read(ARPA)
    # <s> the the: listed; </s> after "the the", not listed: both backoffs, of which the longer is 0; an unknown word.
    np.testing.assert_allclose(log_probs(model, "The the"), [-0.1, -0.0625, 0 - 0.25 - 0.9])
    np.testing.assert_allclose(log_probs(model, "the cat"), [-0.1, -0.125 - 0.25 - 1.2, -0.9])
    # Lines apart: the second begins anew. 10^((0.1 + 0.0625 + 1.15 + 0.3 + 1.2 + 0.9) / 5)
    assert model.perplexity(["the the", "cat"]) == pytest.approx(10 ** (3.7125 / 5))
    assert model.perplexity([]) == 1.0


def test_a_compressed_file_and_the_stored_model_are_equal(read, tmp_path):
    one, other = read(ARPA).to_bytes(), read(gzip.compress(ARPA.encode())).to_bytes()
    assert one == other == read(ARPA.replace("\t", " ")).to_bytes()
    (tmp_path / "model.npz").write_bytes(one)
    assert NgramModel.read(str(tmp_path / "model.npz")).to_bytes() == one


def test_the_order_of_lines_does_not_matter(read):
    lines = ARPA.splitlines()
    lines[7:11] = lines[7:11][::-1]
    assert read("\n".join(lines)).to_bytes() == read(ARPA).to_bytes()


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("\\data\\", "text", "line 20: is not an ARPA file: it has no line \\data\\"),
        ("ngram 2=2", "ngram 2=3", "line 17: expected 3 2-grams with log10 of their probability and backoff"),
        ("ngram 2=2", "ngram 2=1", r"line 15: expected \3-grams:"),
        ("ngram 1=4", "ngram 1=0", r"line 8: expected \2-grams:"),
        ("-0.9", "nan", "line 9: expected 4 1-grams with log10 of their probability and backoff"),
        ("-0.9", "0.9", "line 9: expected 4 1-grams with log10 of their probability and backoff"),
        ("-0.25", "inf", "line 11: expected 4 1-grams with log10 of their probability and backoff"),
        ("the the\n", "the\n", "line 15: expected 2 2-grams with log10 of their probability and backoff"),
        ("<s> the the", "the <s> the", "line 18: the beginning of one of the 3-grams before is not listed"),
        ("<s> the the", "<s> the cat", "line 18: the beginning of one of the 3-grams before is not listed"),
        ("<unk>", "cat", "line 20: the model has no probability of <unk>, <s> or </s>"),
        ("-0.1	<s> the", "-0.1	the the", "line 15: one of the 2-grams before occurs twice"),
        ("\n\\end\\", "", "line 19: expected \\end\\"),
    ],
)
def test_what_is_no_whole_arpa_file_is_refused(read, tmp_path, old, new, says):
    assert old in ARPA
    remedy = "give a whole ARPA file, such as lmplz and ngram-count write (docs/corpus.md)"
    with pytest.raises(InputError, match=f"^{re.escape(f'{tmp_path}/model.arpa, {says}; {remedy}')}$"):
        read(ARPA.replace(old, new, 1))


def test_a_file_that_is_cut_short_or_damaged_is_refused(read):
    for end in range(len(ARPA.rstrip()) - 1):
        with pytest.raises(InputError, match=r"model\.arpa, line \d+: "):
            read(ARPA[:end])
    with pytest.raises(InputError, match=r"model\.arpa: cannot be read \(Compressed file ended"):
        read(gzip.compress(ARPA.encode())[:-20])
