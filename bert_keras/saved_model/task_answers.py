"""Answers of task models in the served graph, one class per task type; tagging and spans have their own modules.

Shapes: B rows, L labels, C choices, T' tokens of the longest sequence of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from bert_keras.saved_model.text_inputs import TextInputs, refuse, text_specs

# The backbone's inputs -> the model's outputs.
Outputs = Callable[[Mapping[str, tf.Tensor]], Any]


class ServedAnswers(Protocol):
    """The answers of a task type: a callable from its inputs to the outputs of `serving_default` by name, per row."""

    specs: list[tf.TensorSpec]  # the inputs, with the names of a row's (`bert_keras.tasks.rows`)

    def __call__(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs."""

    def written(self, outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The outputs of `evaluate`: `answer` string [B], as `bert_keras.tasks.answers.parse_answers` parses them."""


class LabelAnswers:
    """text (and text_pair) string[B] -> label string[B]; labels string[B, L], scores float[B, L] (probabilities)."""

    def __init__(self, outputs: Outputs, inputs: TextInputs, labels: Sequence[str], pair: bool):
        self.specs = text_specs("text", "text_pair") if pair else text_specs("text")
        self._outputs, self._inputs, self._labels = outputs, inputs, tuple(labels)

    def __call__(self, *texts):
        logits = tf.cast(self._outputs(self._inputs(*texts)), tf.float32)  # [B, L]
        labels = tf.constant(self._labels)
        return {
            "label": tf.gather(labels, tf.argmax(logits, axis=-1)),
            "labels": tf.broadcast_to(labels, tf.shape(logits)),
            "scores": tf.nn.softmax(logits),
        }

    def written(self, outputs):
        return {"answer": outputs["label"]}


class NumberAnswers:
    """text (and text_pair) string[B] -> score float[B], not clipped to the task's range."""

    def __init__(self, outputs: Outputs, inputs: TextInputs, pair: bool):
        self.specs = text_specs("text", "text_pair") if pair else text_specs("text")
        self._outputs, self._inputs = outputs, inputs

    def __call__(self, *texts):
        return {"score": tf.cast(self._outputs(self._inputs(*texts)), tf.float32)}

    def written(self, outputs):
        return {"answer": _number(outputs["score"])}


class ChoiceAnswers:
    """text string[B], choices string[B, C] -> choice int64[B], from 0; scores float[B, C] (probabilities)."""

    def __init__(self, outputs: Outputs, inputs: TextInputs):
        self.specs = [*text_specs("text"), tf.TensorSpec([None, None], tf.string, name="choices")]
        self._outputs, self._inputs = outputs, inputs

    def __call__(self, text, choices):
        shape = tf.shape(choices)
        none = tf.fill(shape[:1], shape[1] == 0)
        with tf.control_dependencies([refuse(none, "text {} has no choices: give at least one")]):
            text = tf.identity(text)
        first = tf.repeat(tf.range(shape[0]), shape[1])
        text_ids, choice_ids = self._inputs.tokenize(text), self._inputs.tokenize(tf.reshape(choices, [-1]))
        packed = self._inputs.pack(tf.gather(text_ids, first), choice_ids)  # [B C, T']
        by_row = {name: tf.reshape(array, [shape[0], shape[1], tf.shape(array)[1]]) for name, array in packed.items()}
        logits = tf.cast(self._outputs(by_row), tf.float32)  # [B, C]
        # Without rows there are no columns either, which tf.argmax refuses.
        padded = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
        return {"choice": tf.argmax(padded, axis=-1), "scores": tf.nn.softmax(logits)}

    def written(self, outputs):
        return {"answer": tf.strings.as_string(outputs["choice"])}


class VectorAnswers:
    """text, text_pair string[B] -> vectors float[B, 2, H] of length 1, and score float[B], their cosine.

    Args:
        embed: the signature `embed`.
        written: name of the output that is the answer.
    """

    def __init__(self, embed: Callable[[tf.Tensor], Mapping[str, tf.Tensor]], written: str):
        self.specs = text_specs("text", "text_pair")
        self._embed, self._written = embed, written

    def __call__(self, text, text_pair):
        vectors = tf.stack([self._embed(texts)["embedding"] for texts in (text, text_pair)], axis=1)
        vectors = tf.math.l2_normalize(vectors, axis=-1)
        return {"vectors": vectors, "score": tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)}

    def written(self, outputs):
        answer = outputs[self._written]
        return {"answer": answer if self._written == "vectors" else _number(answer)}


def _number(values):
    # Nine digits distinguish any two float32 values.
    return tf.strings.as_string(values, precision=9, shortest=True)


class TextAnswers(tf.Module):
    """question, context string[B] -> outputs of `answers` (`bert_keras.saved_model.span_answers.SpanAnswers`)."""

    def __init__(self, answers: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]):
        super().__init__()
        self.specs = text_specs("question", "context")
        self._answers = answers

    def __call__(self, question, context):
        return self._answers(question, context)

    def written(self, outputs):
        return {name: outputs[name] for name in ("answer", "null_score_difference")}
