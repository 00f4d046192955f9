"""One instance of each model, with inputs and loss, on any Keras backend; imports TensorFlow or JAX only as the
backend.

python tests/support/models/every_model.py numbers.npz     what each computes, for test_jax_backend.py

Shapes: B batch, T tokens, P predictions, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import keras
import numpy as np
from keras import ops

from bert_keras.models import electra as electra_model
from bert_keras.models import task_models as heads
from bert_keras.models.bilm import MAX_CHARACTERS, PAD, BiLM
from bert_keras.models.dropout import random_bits
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraForPreTraining, ElectraGenerator
from bert_keras.models.left_to_right import LeftToRightLM
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from bert_keras.models.spanbert import SpanBertForPreTraining
from bert_keras.objectives import electra, mlm, mlm_nsp, next_token, span_boundary
from bert_keras.objectives.labels import label_objective
from bert_keras.tasks import objectives
from bert_keras.tasks.task_types import TASK_TYPES
from tests.support.models.tiny_encoders import (
    ALBERT,
    BILM,
    DEBERTA,
    LEFT_TO_RIGHT,
    MODERN,
    MPNET,
    SHAPE,
    TINY,
    T,
    V,
    roberta_config,
)
from tests.support.models.whole_loss import whole

LABELS = 3
LENGTHS = (12, 9, 4)


class Case(NamedTuple):
    """Factories of a model, of features for sequences of given lengths, and of the scalar loss of its outputs."""

    make: Callable[[], keras.Model]
    features: Callable[..., dict[str, np.ndarray]]
    loss: Callable[[Any, dict], Any]


def features(lengths=LENGTHS, length=T, segments=2):
    """Features for all objectives; two adjacent tokens and a third are masked, if present."""
    rng, rows = np.random.default_rng(1), len(lengths)
    mask = (np.arange(length) < np.array(lengths)[:, None]).astype("int32")
    positions = np.array([2, 3, 6, 0], "int32")
    used = (positions < np.array(lengths)[:, None] - 1) & (positions > 0)
    return {
        "input_ids": rng.integers(5, V, mask.shape).astype("int32") * mask,
        "input_mask": mask,
        "segment_ids": mask * (np.arange(length) >= length // 2).astype("int32") * (segments - 1),
        "masked_lm_positions": positions * used,
        "masked_lm_ids": rng.integers(5, V, used.shape).astype("int32") * used,
        "masked_lm_weights": used.astype("float32"),
        "next_sentence_labels": np.arange(rows, dtype="int32")[:, None] % 2,
    }


def of_one_segment(lengths=LENGTHS, length=T):
    return features(lengths, length, segments=1)


def packed(lengths=((5, 4), (7, 0), (6, 6)), length=T):
    """Two sequences a row at most, the second at the end of the first."""
    firsts, seconds = np.array(lengths).T[:, :, None]
    at = np.arange(length)
    sequence = np.where(at < firsts, 1, np.where(at < firsts + seconds, 2, 0)).astype("int32")
    starts = np.where(sequence == 2, firsts, 0).astype("int32")
    there = np.concatenate([firsts > 0, seconds > 0], 1)
    return {
        **features((firsts + seconds)[:, 0], length),
        "sequence_ids": sequence,
        "position_ids": (at.astype("int32") - starts) * (sequence > 0),
        "next_sentence_positions": np.concatenate([0 * firsts, firsts], 1).astype("int32") * there,
        "next_sentence_labels": np.arange(there.size, dtype="int32").reshape(there.shape) % 2,
        "next_sentence_weights": there.astype("float32"),
    }


def choices(lengths=LENGTHS, length=T):
    """Three a row: int [B, 3, T]."""
    one = {name: value for name, value in features(lengths, length).items() if name.startswith(("input", "segment"))}
    return {name: np.stack([value, value[::-1], value[:, ::-1]], 1) for name, value in one.items()}


def summed(sums):
    return {name: ops.sum(value) for name, value in sums.items()}


def loss_of(objective, outputs, weights=None, **labels):
    """An objective's loss for a whole batch; examples have weight 1 by default."""
    batch = {name: np.asarray(values) for name, values in labels.items()}
    rows = len(next(iter(batch.values())))
    batch["weights"] = np.ones(rows, "float32") if weights is None else np.asarray(weights, "float32")
    return objective.loss(summed(objective.example_sums(outputs, batch)), objective.totals(batch))


CLASSES = label_objective("classification")
SEVERAL = TASK_TYPES["multi_label"].objective
TAGS = label_objective("tagging", "token_labels")


def whole_loss(objective):
    """The loss of a whole batch, whose totals are its own sums of weights."""
    return lambda outputs, x: whole(objective.loss, summed(objective.example_sums(outputs, x)))


def mlm_nsp_loss(outputs, x):
    sums = summed(mlm_nsp.example_sums(outputs, x))
    return sums["mlm_nll"] / (sums["mlm_weight"] + 1e-5) + sums["nsp_nll"] / (sums["nsp_weight"] + 1e-5)


def mlm_loss(outputs, x):
    sums = summed(mlm.example_sums(outputs, x))
    return sums["mlm_nll"] / (sums["mlm_weight"] + 1e-5)


def discriminator_loss(outputs, x):
    """As if the masked tokens were replaced ones."""
    x = {**x, "masked_lm_ids": ops.take_along_axis(x["input_ids"], x["masked_lm_positions"], 1) + 1}
    outputs = {**outputs, "sampled_ids": x["input_ids"], "mlm_logits": ops.zeros((*x["masked_lm_ids"].shape, V))}
    sums = summed(electra.example_sums(outputs, x))
    return sums["disc_nll"] / (sums["disc_weight"] + 1e-6)


def labels(x, high=LABELS):
    return np.arange(len(x["input_ids"]), dtype="int32") % high


def token_labels(x):
    return np.where(x["input_mask"], x["input_ids"] % LABELS, -1)


ELECTRA = ElectraConfig(TINY, 12, 1 / 2)
CASES = {
    "bert": Case(lambda: BertForPreTraining(TINY), features, mlm_nsp_loss),
    "bert, packed": Case(lambda: BertForPreTraining(TINY), packed, mlm_nsp_loss),
    "roberta": Case(lambda: RobertaForMaskedLM(roberta_config(1, 64, **SHAPE)), of_one_segment, mlm_loss),
    "albert": Case(lambda: BertForPreTraining(ALBERT), features, mlm_nsp_loss),
    "modern": Case(lambda: RobertaForMaskedLM(MODERN), of_one_segment, mlm_loss),
    "mpnet, packed": Case(lambda: BertForPreTraining(MPNET), packed, mlm_nsp_loss),
    "deberta": Case(lambda: RobertaForMaskedLM(DEBERTA), of_one_segment, mlm_loss),
    "deberta, packed": Case(
        lambda: BertForPreTraining(dataclasses.replace(DEBERTA, shares_position_keys=False)), packed, mlm_nsp_loss
    ),
    "modern, packed": Case(lambda: BertForPreTraining(MODERN), packed, mlm_nsp_loss),
    "modern electra": Case(
        lambda: ElectraForPreTraining(ElectraConfig(MODERN, 12, 1 / 2)), features, whole_loss(electra.OBJECTIVE)
    ),
    "modern, left to right": Case(
        lambda: LeftToRightLM(dataclasses.replace(MODERN, causal=True)),
        of_one_segment,
        whole_loss(next_token.OBJECTIVE),
    ),
    "electra": Case(lambda: ElectraForPreTraining(ELECTRA), features, whole_loss(electra.OBJECTIVE)),
    "deberta-v3": Case(
        lambda: ElectraForPreTraining(ElectraConfig(DEBERTA, 16, 1.0, 1, "gdes")),
        features,
        whole_loss(electra.OBJECTIVE),
    ),
    "electra's generator": Case(lambda: ElectraGenerator(ELECTRA), features, mlm_loss),
    "electra's discriminator": Case(lambda: ElectraDiscriminator(ELECTRA), features, discriminator_loss),
    "spanbert": Case(lambda: SpanBertForPreTraining(TINY, 3), of_one_segment, whole_loss(span_boundary.OBJECTIVE)),
    "left to right": Case(lambda: LeftToRightLM(LEFT_TO_RIGHT), of_one_segment, whole_loss(next_token.OBJECTIVE)),
    "bilm": Case(lambda: BiLM(BILM), of_one_segment, whole_loss(next_token.BIDIRECTIONAL_OBJECTIVE)),
    "classification": Case(
        lambda: heads.BertForSequenceClassification(TINY, LABELS),
        features,
        lambda outputs, x: (
            loss_of(CLASSES, outputs, labels=labels(x))
            + loss_of(SEVERAL, outputs, labels=(labels(x)[:, None] > np.arange(LABELS)).astype("int32"))
        ),
    ),
    "regression": Case(
        lambda: heads.BertForRegression(TINY),
        features,
        lambda outputs, x: loss_of(objectives.number_objective, outputs, labels=labels(x)),
    ),
    "multiple choice": Case(
        lambda: heads.BertForMultipleChoice(TINY),
        choices,
        lambda outputs, x: loss_of(CLASSES, outputs, labels=labels(x)),
    ),
    "similarity": Case(
        lambda: heads.BertForSentenceSimilarity(TINY, "mean"),
        choices,
        lambda outputs, x: loss_of(objectives.vector_objective, outputs, labels=labels(x)),
    ),
    "span": Case(
        lambda: heads.BertForSpanExtraction(TINY),
        features,
        lambda outputs, x: loss_of(
            objectives.span_objective,
            outputs,
            start_positions=labels(x, 1),
            end_positions=labels(x, x["input_ids"].shape[-1]),
        ),
    ),
    "token": Case(
        lambda: heads.BertForTokenClassification(TINY, LABELS),
        features,
        lambda outputs, x: loss_of(TAGS, outputs, token_labels=token_labels(x)),
    ),
    "features": Case(
        lambda: heads.BertForTokenClassification(TINY, LABELS, features="weighted_sum_all", lstm_units=6),
        features,
        lambda outputs, x: loss_of(TAGS, outputs, token_labels=token_labels(x)),
    ),
    "bilm's features": Case(
        lambda: heads.BertForSequenceClassification(BILM, LABELS, lstm_units=6),
        features,
        lambda outputs, x: loss_of(CLASSES, outputs, labels=labels(x)),
    ),
}


# The others are parts of these, or have the same operations.
PARTS = {"electra's generator", "electra's discriminator", "modern electra", "regression"}
ON_JAX = {name: case for name, case in CASES.items() if name not in PARTS}


def random_model(case):
    """The model with random weights, the same on every backend, large enough that all of them matter."""
    model, rng = case.make(), np.random.default_rng(0)
    model.build()
    around = [float(v.path.endswith("gamma")) for v in model.weights]
    values = [one + rng.normal(0, 0.2, v.shape) for one, v in zip(around, model.weights, strict=True)]
    model.set_weights([characters(v) if v.dtype == "int32" else x for v, x in zip(model.weights, values, strict=True)])
    return model


def characters(table):
    """Of a biLM's tokens: two letters, the next ones of the alphabet for the next token."""
    rows = np.arange(table.shape[0])[:, None] + np.arange(MAX_CHARACTERS)
    return np.where(np.arange(MAX_CHARACTERS) < 2, ord("a") + rows, PAD).astype("int32")


def named(outputs):
    """{name: array} of a model's outputs, whatever they are."""
    outputs = outputs if isinstance(outputs, dict) else {"logits": outputs}
    flat = {}
    for name, value in outputs.items():
        flat |= {f"{name}_{i}": one for i, one in enumerate(value)} if isinstance(value, list) else {name: value}
    return flat


def best_guess(logits, seed):
    """In the place of `bert_keras.models.electra.sample`, so that each call gives the same."""
    return ops.cast(ops.argmax(logits, axis=-1), "int32")


def outputs_and_gradients(case, model, x, jit_compile=False):
    """Outputs, the loss, and its gradient by each trainable variable, by path."""
    with mock.patch("bert_keras.models.electra.sample", best_guess):
        outputs, loss, gradients = {"jax": _on_jax, "tensorflow": _on_tensorflow}[keras.backend.backend()](
            case, model, x, jit_compile
        )
    paths = [variable.path.split("/", 1)[1] for variable in model.trainable_variables]
    numbers = named(outputs) | {"loss": loss}
    numbers |= {f"gradient of {path}": value for path, value in zip(paths, gradients, strict=True)}
    return {name: np.asarray(ops.convert_to_numpy(ops.cast(value, "float32"))) for name, value in numbers.items()}


def _on_jax(case, model, x, jit_compile):
    import jax

    others = [v.value for v in model.non_trainable_variables]

    def loss_of(variables):
        outputs, _ = model.stateless_call(variables, others, x)
        return case.loss(outputs, x), outputs

    gradient = jax.jit(jax.value_and_grad(loss_of, has_aux=True))
    (loss, outputs), gradients = gradient([v.value for v in model.trainable_variables])
    return outputs, loss, gradients


def _on_tensorflow(case, model, x, jit_compile):
    import tensorflow as tf

    def run(x):
        with tf.GradientTape() as tape:
            outputs = model(x)
            loss = case.loss(outputs, x)
        variables = [v.value for v in model.trainable_variables]
        return outputs, loss, [*map(tf.convert_to_tensor, tape.gradient(loss, variables, unconnected_gradients="zero"))]

    return tf.function(run, jit_compile=True)(x) if jit_compile else run(x)


def drawn():
    """What the first weights, dropout and ELECTRA draw: equal on every backend."""
    numbers = {}
    for name, case in ON_JAX.items():
        model = case.make()
        model.build()
        numbers |= {f"{name}'s weight {i}": v.numpy() for i, v in enumerate(model.weights)}
    generator = keras.random.SeedGenerator(3)
    logits = np.random.default_rng(0).normal(0, 2, (500, V)).astype("float32")
    numbers["sampled"] = ops.convert_to_numpy(electra_model.sample(logits, generator))
    for call in (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 5):
        state = np.array([3, call]).astype(generator.state.dtype)
        numbers[f"bits of call {call}"] = ops.convert_to_numpy(random_bits((2, 3), ops.convert_to_tensor(state)))
    return numbers


def main(path):
    numbers, with_tensorflow = {}, []
    for name, case in ON_JAX.items():
        found = outputs_and_gradients(case, random_model(case), case.features())
        numbers |= {f"{name}: {key}": value for key, value in found.items()}
        with_tensorflow += [name] * ("tensorflow" in sys.modules)
    numbers |= {f"drawn: {key}": value for key, value in drawn().items()}
    np.savez(path, backend=keras.backend.backend(), with_tensorflow=with_tensorflow, **numbers)


if __name__ == "__main__":
    main(sys.argv[1])
