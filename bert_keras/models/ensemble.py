"""Ensembles of task models. Shapes: B batch, T tokens."""

from collections.abc import Sequence

import keras
from keras import ops

from bert_keras.models.layers import MASKED_SCORE


class Ensemble(keras.Model):
    """An ensemble of task models of one type.

    Call with the inputs of its models -> the float32 mean of their outputs: logits, or the numbers of a regression. For
    spans, `start_logits` and `end_logits` float [B, T] are the logarithm of the mean probabilities, without padding.
    `models`: built models.
    """

    def __init__(self, models: Sequence[keras.Model], **kwargs):
        super().__init__(**kwargs)
        self.models = list(models)
        self.built = True

    def call(self, inputs, training=False):
        outputs = [model(inputs, training=training) for model in self.models]
        if isinstance(outputs[0], dict):
            names = outputs[0]
            return {name: _log_mean([output[name] for output in outputs], inputs["input_mask"]) for name in names}
        return ops.mean(ops.stack([ops.cast(output, "float32") for output in outputs]), axis=0)


def _log_mean(logits, input_mask):
    """Logits [B, T] of several models -> the logarithm of the mean of their softmax, without padding."""
    # A span's score is the sum of two logits (run_squad.py, `write_predictions`). With log probabilities instead, spans
    # are ranked by the product of the summed start and end probabilities, and the code that reads logits is unchanged.
    # Mean and sum differ by a constant, which cancels in the difference to the score of no answer. Windows are compared
    # by probabilities, not logits: a window without the answer was trained to put its probability on position 0.
    padding = (1.0 - ops.cast(input_mask, "float32")) * MASKED_SCORE
    probabilities = [ops.log_softmax(ops.cast(output, "float32") + padding, axis=-1) for output in logits]
    return ops.logsumexp(ops.stack(probabilities), axis=0) - ops.log(float(len(logits)))
