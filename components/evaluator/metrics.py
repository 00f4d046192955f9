"""The gate's metrics, for TensorFlow Model Analysis, over the model's `evaluate` signature.

The signature gives sums and weights an example (`bert_keras.objectives.mlm_nsp`); a metric is a ratio of two totals.
"""

from __future__ import annotations

import math

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma


class _Ratio(tfma.metrics.Metric):
    """finish(sum of one output / sum of another) over the examples of a slice; subclasses name both outputs."""

    numerator: str
    denominator: str

    def __init__(self, name: str):
        # TFMA reads the parameter names of this function, so it is no method.
        def computations(name: str, model_name: str = "", output_name: str = ""):
            key = tfma.metrics.MetricKey(name=name, model_name=model_name, output_name=output_name)
            combiner = _RatioCombiner(key, self.numerator, self.denominator, self.finish)
            return [tfma.metrics.MetricComputation(keys=[key], preprocessors=None, combiner=combiner)]

        super().__init__(tfma.metrics.merge_per_key_computations(computations), name=name)

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


# The classes take no arguments: nested JSON in an EvalConfig breaks ML Metadata on PostgreSQL.
class MlmAccuracy(_Ratio):
    """Share of the masked positions whose likeliest token is the right one."""

    numerator, denominator = "mlm_correct", "mlm_weight"

    def __init__(self):
        super().__init__("mlm_accuracy")


class MlmPerplexity(_Ratio):
    """exp of the mean negative log-likelihood of the masked tokens."""

    numerator, denominator = "mlm_nll", "mlm_weight"

    def __init__(self):
        super().__init__("mlm_perplexity")

    @staticmethod
    def finish(ratio: float) -> float:
        return math.exp(min(ratio, 700.0))


class NspAccuracy(_Ratio):
    """Share of the pairs told right: does B follow A?"""

    numerator, denominator = "nsp_correct", "nsp_weight"

    def __init__(self):
        super().__init__("nsp_accuracy")
