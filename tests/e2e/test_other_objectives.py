"""Text to a pushed model through the command line, for objectives without next sentences: metrics, signatures."""

import re

import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizer's op)

from bert_keras.convert.families.table import FAMILIES
from bert_keras.finetuning.init_checkpoint import read_init
from bert_keras.objectives.table import PARTS
from pipeline.recipes.pretraining import RECIPES
from tests.support.models.model_folders import read_any
from tests.support.pipeline.command_line import arguments, bert_tfx, summary_of

FILLS = ["fill_mask", "encode", "encode_pair"]
# By the recipe, or for another: settings, metrics and pushed signatures. Embeddings of 16 under an encoder of 32.
CASES = {
    "segment_pair": ({"examples__objective": "segment_pair"}, "mlm", FILLS),
    "left_to_right_tiny": ({}, "left_to_right", ["encode", "encode_pair"]),
    "elmo_tiny": ({}, "bidirectional", ["encode", "encode_pair"]),
    "electra_tiny": ({"pretraining__embedding_size": 16}, "electra", FILLS),
    "deberta_v3": (
        {
            "examples__objective": "full_sentences",
            "model__position_embedding": "none",
            "model__relative_attention": "disentangled",
            "model__type_vocab_size": 0,
            "pretraining__model_family": "electra",
            "pretraining__embedding_sharing": "gdes",
            "pretraining__embedding_size": 32,
            "pretraining__generator_layers": 1,
            "pretraining__generator_size": 1.0,
        },
        "electra",
        FILLS,
    ),
    "roberta_tiny": ({"examples__masking__unit": "whole_word"}, "mlm", FILLS),
    "spanbert_tiny": ({}, "span_boundary", FILLS),
    "modern_tiny": ({}, "mlm", FILLS),
    "albert_tiny": (
        {"model__embedding_width": 16, "vocabulary__algorithm": "sentencepiece"},
        "mlm_sop",
        [*FILLS, "next_sentence"],
    ),
}
ALL_KEYS = ("mlm", "nsp", "sop", "lm", "forward", "backward", "sbo", "disc")
TEXT = "Returns a new array of the given shape."


def figures_of(summary):
    """The learned metrics, by name."""
    return {name for name in summary if name.split("_")[0] in ALL_KEYS}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """Runs of all objectives: a model of another objective is not the next one's baseline."""
    return tmp_path_factory.mktemp("objectives") / "run"


# objectives/test_registry.py trains and exports each, test_eval_gate.py judges each by its own metrics, and
# test_pretrain_page.py has the page of each.
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_objective_is_pushed_and_reports_only_its_own_metrics(corpus, run_dir, case):
    changes, objective, signatures = CASES[case]
    # 120 steps give an accuracy of one to three percent, which is no matter here: perplexity is what is looked at
    # below.
    command, default, *words = arguments(corpus, run_dir, gate__min_mlm_accuracy=0, **changes)
    code, out, err = bert_tfx(command, case if case in RECIPES else default, *words)
    assert code == 0, out + err

    summary = summary_of(run_dir)
    parts = PARTS[objective]
    expected = {f"{part.key}_{metric}" for part in parts for metric in part.metrics}
    assert summary["objective"] == objective
    assert figures_of(summary) == expected | ({"disc_least_original"} if objective == "electra" else set())
    # The model learned from the text: it is better than the unigram model.
    assert 1 < summary[f"{parts[0].key}_perplexity"] < 1.2 * summary["unigram_perplexity"] < 1200
    assert summary["blessed"] and summary["pushed_version"]
    assert bool(summary.get("samples")) == ("fill_mask" in signatures)
    masked = [sample["text"] for sample in summary.get("samples", [])]
    assert all(("<mask>" if case == "roberta_tiny" else "[MASK]") in text for text in masked)
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
    assert ("Masked tokens" in text) == (objective not in ("left_to_right", "bidirectional"))

    pushed = str(run_dir / "serving" / summary["pushed_version"])
    model = tf.saved_model.load(pushed)
    assert set(model.signatures) == {"serving_default", "evaluate", *signatures}
    assert model.signatures["encode"](text=tf.constant([TEXT]))["sequence_output"].shape[-1] == 32
    # Fine-tuning can start from it.
    family = (
        case.removesuffix("_tiny")
        .replace("modern", "modernbert")
        .replace("elmo", "bilm")
        .replace("deberta_v3", "deberta-v2")
    )
    assert read_any(pushed).family == (family if family in FAMILIES else "bert")
    start = read_init(pushed)
    assert (start.config.causal, start.architecture.embedding_size) == (
        objective == "left_to_right",
        16 if family in ("electra", "albert") else 32,
    )
