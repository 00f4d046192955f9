"""Perplexity per word: the arithmetic, the scoring of a model, and the blessing of a model that forgot."""

import json
import math
import types

import pytest
import tensorflow as tf

from bert_keras.data.tfrecord import frame
from bert_keras.errors import StageError
from components.evaluator import component, word_perplexity
from components.evaluator.gate_failures import FORGETTING
from components.evaluator.results import gate_failures
from pipeline.summaries.gate_failures import sentence

# Four held-out examples in two shards, and the loss that the toy model has for each: its number, of two tokens.
SHARDS = [[b"1", b"2"], [b"3", b"10"]]


@pytest.fixture
def examples(tmp_path):
    """Held-out examples; their documents have 6 tokens in 4 words."""
    folder = tmp_path / "examples"
    (folder / "Split-eval").mkdir(parents=True)
    shards = []
    for number, records in enumerate(SHARDS):
        path = f"Split-eval/examples-0000{number}-of-00002.tfrecord"
        content = b"".join(map(frame, records))
        (folder / path).write_bytes(content)
        shards.append({"path": path, "pass_number": 0, "records": 2, "size": len(content), "crc32c": ""})
    (folder / "example_shards.json").write_text(json.dumps(shards))
    (folder / "example_spec.json").write_text(json.dumps({"counts": {"eval": {"tokens": 6, "words": 4}}}))
    return str(folder)


class Toy(tf.Module):
    """Its `evaluate` reads each example as its loss."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def evaluate(self, examples):
        loss = tf.strings.to_number(examples)
        return {"mlm_nll": loss, "mlm_weight": 2.0 * tf.ones_like(loss)}


def saved(tmp_path, signature):
    """A SavedModel whose `evaluate` has this name."""
    toy = Toy()
    tf.saved_model.save(toy, str(tmp_path / "model"), {signature: toy.evaluate})
    return str(tmp_path / "model")


def test_the_mean_loss_is_of_all_examples_or_of_the_first(tmp_path, examples):
    model = saved(tmp_path, "evaluate")
    found = [word_perplexity.mean_loss(model, examples, "mlm", most) for most in (None, 3, 99)]
    assert found == [16 / 8, 6 / 6, 16 / 8]
    assert word_perplexity.mean_loss(model, examples, "lm") is None  # the head was drawn


def test_tokens_per_word_of_a_source(tmp_path):
    counts = {name: {"eval": {"tokens": tokens, "words": 10}} for name, tokens in (("ko", 30), ("en", 12))}
    spec = {"counts": {"eval": {"tokens": 42, "words": 20}}, "sources": counts}
    (tmp_path / "example_spec.json").write_text(json.dumps(spec))
    found = [word_perplexity.tokens_per_word(str(tmp_path), name) for name in ("", "ko", "en")]
    assert found == [2.1, 3.0, 1.2]


def test_a_reference_without_examples_judges_nothing(monkeypatch):
    monkeypatch.setattr(component.ExampleSpec, "load", lambda folder: types.SimpleNamespace(eval_examples=int(folder)))
    assert component._examples_of("7", 0.1) == 7 and component._examples_of("0", None) == 0
    with pytest.raises(StageError, match=r"--reference-corpus: gate\.max_forgetting needs examples"):
        component._examples_of("0", 0.1)


def test_a_model_without_evaluate_has_no_loss(tmp_path, examples):
    """As an initial model is exported whose masked-LM head, or ELECTRA's generator, was drawn."""
    assert word_perplexity.mean_loss(saved(tmp_path, "encode"), examples, "mlm") is None


def test_a_word_of_two_tokens_is_guessed_twice(examples):
    """One vocabulary has a token for a word, the other two, which are each guessed with probability 1/3."""
    assert word_perplexity.word_perplexity(math.log(9), 1.0) == pytest.approx(9)
    assert word_perplexity.word_perplexity(math.log(3), 2.0) == pytest.approx(9)
    assert word_perplexity.tokens_per_word(examples) == 1.5


@pytest.mark.parametrize(
    ("before", "after", "allowed", "refused"),
    [
        (30.0, 33.0, 0.1, False),  # as gate.max_mlm_perplexity_increase: the bound itself is allowed
        (30.0, 33.1, 0.1, True),
        (30.0, 30.0, 0.0, False),
        (30.0, 29.0, -0.1, True),
        (30.0, 1e9, None, False),
        (30.0, math.inf, 0.1, True),
        (30.0, math.nan, 0.1, True),
        (None, 30.0, 0.1, False),  # the initial model has no loss
    ],
)
def test_a_model_forgot_that_rises_more_than_allowed(before, after, allowed, refused):
    assert word_perplexity.forgot({"initial_model": before, "model": after, "max_forgetting": allowed}) == refused


def test_forgetting_is_a_failure_of_the_gate_in_words(tmp_path, monkeypatch):
    passed = types.SimpleNamespace(metric_validations_per_slice=[], missing_slices=[])
    monkeypatch.setattr("components.evaluator.results.tfma.load_validation_result", lambda _: passed)
    reference = {"initial_model": 30.0, "model": 36.0, "max_forgetting": 0.1}
    assert gate_failures(str(tmp_path)) == []
    (tmp_path / "word_perplexity.json").write_text(json.dumps({"reference": reference}))
    (failure,) = gate_failures(str(tmp_path))
    assert failure.kind == FORGETTING
    assert sentence(failure) == (
        "reference corpus: perplexity per word 36, the initial model's is 30 (threshold: a change of at most +10.0%)"
    )
    (tmp_path / "word_perplexity.json").write_text(json.dumps({"reference": reference | {"max_forgetting": 0.2}}))
    assert gate_failures(str(tmp_path)) == []
