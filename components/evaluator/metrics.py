"""The gate's metrics, for TensorFlow Model Analysis, over the model's `evaluate` signature.

The signature gives sums and weights an example, as `bert_keras.objectives` says; a metric is a ratio of two totals.
"""

from __future__ import annotations

import math

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma


class _Ratio(tfma.metrics.Metric):
    """finish(sum of one output / sum of another) over the examples of a slice.

    Subclasses say of which part of the objective: its sums are `part`_nll, `part`_correct and `part`_weight.
    """

    part: str
    figure: str
    numerator: str

    def __init__(self):
        # TFMA reads the parameter names of this function, so it is no method.
        def computations(name: str, model_name: str = "", output_name: str = ""):
            key = tfma.metrics.MetricKey(name=name, model_name=model_name, output_name=output_name)
            numerator, denominator = f"{self.part}_{self.numerator}", f"{self.part}_weight"
            combiner = _RatioCombiner(key, numerator, denominator, self.finish)
            return [tfma.metrics.MetricComputation(keys=[key], preprocessors=None, combiner=combiner)]

        super().__init__(tfma.metrics.merge_per_key_computations(computations), name=f"{self.part}_{self.figure}")

    @staticmethod
    def finish(ratio: float) -> float:
        """From the ratio to the metric."""
        return ratio


class _RatioCombiner(beam.CombineFn):
    """Sums two outputs of the model over batches."""

    def __init__(self, key, numerator, denominator, finish):
        self.key, self.numerator, self.denominator, self.finish = key, numerator, denominator, finish

    def create_accumulator(self):
        return 0.0, 0.0

    def add_input(self, accumulator, inputs):
        # With a baseline TFMA keys the outputs by model name; without one it does not, and ignores the name.
        outputs = inputs.get_predictions(self.key.model_name)
        numerator, denominator = accumulator
        return (
            numerator + float(np.sum(outputs[self.numerator], dtype=np.float64)),
            denominator + float(np.sum(outputs[self.denominator], dtype=np.float64)),
        )

    def merge_accumulators(self, accumulators):
        numerators, denominators = zip(*accumulators, strict=True)
        return sum(numerators), sum(denominators)

    def extract_output(self, accumulator):
        numerator, denominator = accumulator
        return {self.key: self.finish(numerator / denominator) if denominator else math.nan}


class _Accuracy(_Ratio):
    figure, numerator = "accuracy", "correct"


class _Loss(_Ratio):
    figure, numerator = "loss", "nll"


class _Perplexity(_Ratio):
    """exp of the mean negative log-likelihood."""

    figure, numerator = "perplexity", "nll"

    @staticmethod
    def finish(ratio: float) -> float:
        return math.exp(min(ratio, 700.0))


# The classes take no arguments: nested JSON in an EvalConfig breaks ML Metadata on PostgreSQL.
class MlmAccuracy(_Accuracy):
    """Share of the masked positions whose likeliest token is the right one; of ELECTRA the generator's."""

    part = "mlm"


class MlmPerplexity(_Perplexity):
    """Of the masked tokens; of ELECTRA the generator's."""

    part = "mlm"


class NspAccuracy(_Accuracy):
    """Share of the pairs told right: does B follow A?"""

    part = "nsp"


class LmAccuracy(_Accuracy):
    """Share of the tokens whose likeliest next token is the right one."""

    part = "lm"


class LmPerplexity(_Perplexity):
    """Of the next tokens."""

    part = "lm"


class SboAccuracy(_Accuracy):
    """Share of the masked tokens that the boundaries of their spans tell right (FACTS D9)."""

    part = "sbo"


class SboPerplexity(_Perplexity):
    """Of the masked tokens, as the boundaries of their spans tell them."""

    part = "sbo"


class DiscAccuracy(_Accuracy):
    """Share of the tokens told right: replaced or not (FACTS D8)?"""

    part = "disc"


class DiscLoss(_Loss):
    """Mean negative log-likelihood, in nats, of a token's being replaced or not."""

    part = "disc"


def class_name(metric: str) -> str:
    """The name of a metric's class in this module: TFMA finds a metric by module and class.

    >>> class_name("mlm_perplexity")
    'MlmPerplexity'
    """
    return "".join(word.capitalize() for word in metric.split("_"))
