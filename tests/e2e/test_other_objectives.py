"""Text to a pushed model by the command line, of objectives without next sentences: what is judged, told, served."""

import json
import re

import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizer's op)
from command_line import arguments, bert_tfx

from bert_keras.interchange.any_format import read_any
from bert_keras.tasks.start import read_start
from pipeline.objective_parts import PARTS

ELECTRA = {
    "examples__objective": "segment_pair",
    "examples__masking__when": "dynamic",
    "pretraining__model_family": "electra",
    "pretraining__embedding_size": 32,
    "pretraining__generator_size": 0.5,
}
# What is set, what is learned, and the signatures that are pushed; serving_default is the first of them.
CASES = {
    "segment_pair": ({"examples__objective": "segment_pair"}, "mlm", ["fill_mask", "encode", "encode_pair"]),
    "left_to_right": (
        {"examples__objective": "left_to_right", "model__causal": "true"},
        "left_to_right",
        ["encode", "encode_pair"],
    ),
    "electra": (ELECTRA, "electra", ["encode", "encode_pair"]),
}
ALL_KEYS = ("mlm", "nsp", "lm", "sbo", "disc")
TEXT = "Returns a new array of the given shape."


def figures_of(summary):
    """The figures of what was learned, by name."""
    return {name for name in summary if name.split("_")[0] in ALL_KEYS}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """Of all of them: a model of another objective, on the same text, is no baseline to the next one."""
    return tmp_path_factory.mktemp("objectives") / "run"


@pytest.mark.parametrize("case", CASES)
def test_it_is_pushed_and_only_what_it_learned_is_told(corpus, run_dir, case):
    changes, objective, signatures = CASES[case]
    code, out, err = bert_tfx(*arguments(corpus, run_dir, **changes))
    assert code == 0, out + err

    summary = json.loads((run_dir / "summary.json").read_text())
    parts = PARTS[objective]
    expected = {f"{part.key}_{metric}" for part in parts for metric in part.metrics}
    assert summary["objective"] == objective
    assert figures_of(summary) == expected | ({"disc_least_original"} if objective == "electra" else set())
    # Something was learned from the text: better than the frequencies of the same tokens.
    assert 1 < summary[f"{parts[0].key}_perplexity"] < 1.2 * summary["unigram_perplexity"] < 1200
    assert summary["blessed"] and summary["pushed_version"]
    assert bool(summary.get("samples")) == ("fill_mask" in signatures)
    for part in parts:
        assert f"{part.name} " in out
    assert "next sentence" not in out and "nan" not in out.lower()

    report = (run_dir / "report.html").read_text()
    text = " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", report, flags=re.DOTALL).split())
    for part in parts:
        assert f"{part.title} accuracy by training step: training" in report and f"{part.title} loss" in text
    assert "Next-sentence" not in text and "Random next sentence" not in text and "nan" not in text.split()
    assert "no earlier comparable model" in text
    assert ("Sample predictions" in text) == ("fill_mask" in signatures)
    assert ("Pieces hidden" in text) == (objective != "left_to_right")

    pushed = str(run_dir / "serving" / summary["pushed_version"])
    model = tf.saved_model.load(pushed)
    assert set(model.signatures) == {"serving_default", "evaluate", *signatures}
    assert model.signatures["encode"](text=tf.constant([TEXT]))["sequence_output"].shape[-1] == 32
    if objective == "electra":
        return
    # Fine-tuning starts from it.
    assert read_any(pushed).family == "bert"
    assert read_start(pushed).config.causal == (objective == "left_to_right")
