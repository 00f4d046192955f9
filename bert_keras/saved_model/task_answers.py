"""Answers of task models in the served graph, one function per task type; tagging and spans have their own modules.

Shapes: B rows, L labels, C choices, T' tokens of the longest sequence of the batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_keras.saved_model.text_inputs import TextInputs, refuse, text_specs
from bert_keras.tasks.table import SEPARATOR, Task

# The backbone's inputs -> the model's outputs.
Outputs = Callable[[Mapping[str, tf.Tensor]], Any]
Tensors = Mapping[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class ServedAnswers:
    """The answers of a task type.

    Attributes:
        specs: the inputs, with the names of a row's (`bert_keras.tasks.rows`).
        answer: from the inputs to the outputs of `serving_default` by name, per row.
        written: from these to the outputs of `evaluate`: `answer` string [B], as
            `bert_keras.tasks.answers.parse_answers` parses them.
    """

    specs: list[tf.TensorSpec]
    answer: Callable[..., dict[str, tf.Tensor]]
    written: Callable[[Tensors], dict[str, tf.Tensor]]


def label_answers(outputs: Outputs, inputs: TextInputs, task: Task) -> ServedAnswers:
    """text (and text_pair) string[B] -> label string[B]; labels string[B, L], scores float[B, L] (probabilities).

    Of several labels a text, each has a probability of its own, and `label` is the likeliest, for clients of one label;
    the answer of `evaluate` is those of at least 0.5.
    """
    several = task.kind == "multi_label"

    def answer(*texts):
        logits = tf.cast(outputs(inputs(*texts)), tf.float32)  # [B, L]
        names = tf.constant(task.labels)
        return {
            "label": tf.gather(names, tf.argmax(logits, axis=-1)),
            "labels": tf.broadcast_to(names, tf.shape(logits)),
            "scores": tf.sigmoid(logits) if several else tf.nn.softmax(logits),
        }

    def written(answers):
        if not several:
            return {"answer": answers["label"]}
        chosen = tf.ragged.boolean_mask(answers["labels"], answers["scores"] >= 0.5)
        return {"answer": tf.strings.reduce_join(chosen, axis=-1, separator=SEPARATOR)}

    return ServedAnswers(_texts(task.pair), answer, written)


def number_answers(outputs: Outputs, inputs: TextInputs, pair: bool) -> ServedAnswers:
    """text (and text_pair) string[B] -> score float[B], not clipped to the task's range."""

    def answer(*texts):
        return {"score": tf.cast(outputs(inputs(*texts)), tf.float32)}

    return ServedAnswers(_texts(pair), answer, lambda answers: {"answer": _number(answers["score"])})


def choice_answers(outputs: Outputs, inputs: TextInputs) -> ServedAnswers:
    """text string[B], choices string[B, C] -> choice int64[B], from 0; scores float[B, C] (probabilities)."""

    def answer(text, choices):
        shape = tf.shape(choices)
        none = tf.fill(shape[:1], shape[1] == 0)
        with tf.control_dependencies([refuse(none, "text {} has no choices: give at least one")]):
            text = tf.identity(text)
        first = tf.repeat(tf.range(shape[0]), shape[1])
        text_ids, choice_ids = inputs.tokenize(text), inputs.tokenize(tf.reshape(choices, [-1]))
        packed = inputs.pack(tf.gather(text_ids, first), choice_ids)  # [B C, T']
        by_row = {name: tf.reshape(array, [shape[0], shape[1], tf.shape(array)[1]]) for name, array in packed.items()}
        logits = tf.cast(outputs(by_row), tf.float32)  # [B, C]
        # Without rows there are no columns either, which tf.argmax refuses.
        padded = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
        return {"choice": tf.argmax(padded, axis=-1), "scores": tf.nn.softmax(logits)}

    specs = [*text_specs("text"), tf.TensorSpec([None, None], tf.string, name="choices")]
    return ServedAnswers(specs, answer, lambda answers: {"answer": tf.strings.as_string(answers["choice"])})


def vector_answers(embed: Callable[[tf.Tensor], Tensors], written: str) -> ServedAnswers:
    """text, text_pair string[B] -> vectors float[B, 2, H] of length 1, and score float[B], their cosine.

    Args:
        embed: the signature `embed`.
        written: name of the output that is the answer.
    """

    def answer(text, text_pair):
        vectors = tf.stack([embed(texts)["embedding"] for texts in (text, text_pair)], axis=1)
        vectors = tf.math.l2_normalize(vectors, axis=-1)
        return {"vectors": vectors, "score": tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)}

    def as_written(answers):
        return {"answer": answers[written] if written == "vectors" else _number(answers[written])}

    return ServedAnswers(text_specs("text", "text_pair"), answer, as_written)


def _texts(pair: bool) -> list[tf.TensorSpec]:
    return text_specs("text", "text_pair") if pair else text_specs("text")


def _number(values: tf.Tensor) -> tf.Tensor:
    # Nine digits distinguish any two float32 values.
    return tf.strings.as_string(values, precision=9, shortest=True)
