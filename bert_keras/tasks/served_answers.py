"""Answers of task models in the served graph, a class a kind; tagging and spans have files of their own.

Shapes: B rows, L labels, C choices, T' longest sequence of the batch in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from bert_keras.text_inputs import TextInputs, refuse, text_specs

# The backbone's inputs -> the model's outputs.
Outputs = Callable[[Mapping[str, tf.Tensor]], Any]


class ServedAnswers(Protocol):
    """What a kind serves: called with its inputs, it gives the outputs of `serving_default`, by name, a row each."""

    specs: list[tf.TensorSpec]  # the inputs, named as those of a row (`bert_keras.tasks.rows`)

    def __call__(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs."""

    def written(self, outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """What `evaluate` says of them: `answer` string [B], which `bert_keras.tasks.answers.parse_answer` reads."""


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
    """text (and text_pair) string[B] -> score float[B], as it is: it may be out of the task's range."""

    def __init__(self, outputs: Outputs, inputs: TextInputs, pair: bool):
        self.specs = text_specs("text", "text_pair") if pair else text_specs("text")
        self._outputs, self._inputs = outputs, inputs

    def __call__(self, *texts):
        return {"score": tf.cast(self._outputs(self._inputs(*texts)), tf.float32)}

    def written(self, outputs):
        # Nine digits tell any two floats apart.
        return {"answer": tf.strings.as_string(outputs["score"], precision=9, shortest=True)}


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
        pieces = self._inputs.pieces(text), self._inputs.pieces(tf.reshape(choices, [-1]))
        packed = self._inputs.pack(tf.gather(pieces[0], first), pieces[1])  # [B C, T']
        by_row = {name: tf.reshape(array, [shape[0], shape[1], tf.shape(array)[1]]) for name, array in packed.items()}
        logits = tf.cast(self._outputs(by_row), tf.float32)  # [B, C]
        # Of no rows there are no columns either, which tf.argmax would refuse.
        padded = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
        return {"choice": tf.argmax(padded, axis=-1), "scores": tf.nn.softmax(logits)}

    def written(self, outputs):
        return {"answer": tf.strings.as_string(outputs["choice"])}


class TextAnswers(tf.Module):
    """question, context string[B] -> what `answers` (`bert_keras.tasks.span_served.SpanAnswers`) returns."""

    def __init__(self, answers: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]):
        super().__init__()
        self.specs = text_specs("question", "context")
        self._answers = answers

    def __call__(self, question, context):
        return self._answers(question, context)

    def written(self, outputs):
        return {name: outputs[name] for name in ("answer", "null_score_difference")}
