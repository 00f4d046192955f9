"""`bert-tfx examples --show`: what is printed can be read, and is what was stored."""

import json
import re

import pytest

from pipeline.recipes.pretraining import recipe_of
from tests.support.pipeline.command_line import bert_tfx

ANIMALS = ["cat", "dog", "cow", "pig", "hen", "fox", "bee", "owl", "ant", "elk", "emu", "eel"]
WORDS = [*["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sat", "on", "a", "mat"], *ANIMALS]


@pytest.fixture
def show(tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(f"the {animal} sat on a mat" for animal in ANIMALS))
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))

    def lines(count, **settings):
        settings = {"examples__dupe_factor": 1, "corpus__segments": "lines", "corpus__eval_fraction": 0.4, **settings}
        changes = [word for name, value in settings.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]
        files = ("--corpus", tmp_path / "text.txt", "--vocab", tmp_path / "vocab.txt", "--output", tmp_path / "out")
        code, out, err = bert_tfx("examples", *files, "--show", count, *changes)
        assert code == 0, err
        return out.splitlines()[:-1]

    return lines


def test_answers_stand_beside_what_is_read(show):
    lines = show(3, examples__objective="single_sequence", examples__masking__masked_lm_prob=0.5)
    assert [line.partition(":")[0] for line in lines][:3] == ["train"] * 3 and lines[-1].startswith("eval: ")
    assert any("[MASK]=" in line for line in lines)
    for line in lines:
        text = re.sub(r"\S+=(\w+)", r"\1", line.partition(": ")[2])
        assert re.fullmatch(rf"\[CLS\] the ({'|'.join(ANIMALS)}) sat on a mat \[SEP\]", text), line
        assert line.count("=") == 4  # half of eight


def test_dynamic_masking_shows_in_the_held_out_split(show):
    lines = show(1, examples__objective="single_sequence", examples__masking__when="dynamic")
    assert ["=" in line for line in lines] == [False, True]


def test_a_recipe_says_how_examples_are_made(tmp_path):
    words = ("examples", "--corpus", tmp_path / "text.txt", "--output", tmp_path / "out", "--recipe")
    code, _, err = bert_tfx(*words, "tiny")
    assert code == 2 and "tiny: no such recipe; there are tiny_cpu, " in err
    (tmp_path / "text.txt").write_text("\n\n".join(f"The {animal} sat on a mat, and I saw it." for animal in ANIMALS))
    code, out, err = bert_tfx(*words, "roberta_tiny", "--show", 1, "--set", "corpus.eval_fraction=0.4")
    assert code == 0, err
    given, spec = recipe_of("roberta_tiny"), json.loads((tmp_path / "out" / "example_spec.json").read_text())
    assert spec["objective"] == given.examples.objective == "full_sentences"
    assert out.startswith("train: <s> ") and "<mask>=" in out and (tmp_path / "out" / "merges.txt").exists()


def test_labels_of_pairs(show):
    lines = show(2, examples__max_seq_length=32)
    assert lines and all(re.search(r" \[SEP\] .* \[SEP\] next_sentence_label=1$", line) for line in lines)
