"""Several models as one. Shapes: B batch."""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import ops

from bert_keras.layers import MASKED_SCORE


class Ensemble(keras.Model):
    """Task models of one kind that answer together.

    Call with what each of them takes -> the mean of their outputs: logits, or the numbers of a regression. Of spans,
    `start_logits` and `end_logits` float [B, T]: the logarithm of the mean of their probabilities, padding left out.
    Float32.

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
            names = outputs[0]
            return {name: _log_mean([output[name] for output in outputs], inputs["input_mask"]) for name in names}
        return ops.mean(ops.stack([ops.cast(output, "float32") for output in outputs]), axis=0)


def _log_mean(logits, input_mask):
    """Logits [B, T] of several models -> the logarithm of the mean of their softmax, over what is no padding."""
    # A span's score is the sum of two logits (FACTS D6). With logarithms in their place it ranks spans by the product
    # of the summed probabilities of start and end, and what reads answers off logits stays as it is. The mean, not the
    # sum, differs by a constant, which the difference to the score of no answer does not see. Windows are compared as
    # probabilities, not as logits: one without the answer has put its own on position 0, as it was trained to.
    padding = (1.0 - ops.cast(input_mask, "float32")) * MASKED_SCORE
    probabilities = [ops.log_softmax(ops.cast(of_one, "float32") + padding, axis=-1) for of_one in logits]
    return ops.logsumexp(ops.stack(probabilities), axis=0) - ops.log(float(len(logits)))
