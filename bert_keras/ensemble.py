"""Several models as one. Shapes: B batch."""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import ops


class Ensemble(keras.Model):
    """Task models of one kind that answer together.

    Call with what each of them takes -> the mean of their outputs: logits, or the numbers of a regression. Of spans,
    `start_logits` and `end_logits` float [B, T], the logarithm of the mean of the probabilities, whose sum a softmax
    leaves as it is. Float32.

    Args:
        models: built.
    """

    def __init__(self, models: Sequence[keras.Model], **kwargs):
        super().__init__(**kwargs)
        if not models:
            raise ValueError("an ensemble needs a model")
        self.models = list(models)
        self.built = True

    def call(self, inputs, training=False):
        outputs = [model(inputs, training=training) for model in self.models]
        if isinstance(outputs[0], dict):
            return {name: _log_mean([output[name] for output in outputs]) for name in outputs[0]}
        return ops.mean(ops.stack([ops.cast(output, "float32") for output in outputs]), axis=0)


def _log_mean(logits):
    """Logits [B, T] of several models -> the logarithm of the mean of their softmax."""
    probabilities = [ops.log_softmax(ops.cast(of_one, "float32"), axis=-1) for of_one in logits]
    return ops.logsumexp(ops.stack(probabilities), axis=0) - ops.log(float(len(logits)))
