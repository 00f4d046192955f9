"""The gate's metrics, for TensorFlow Model Analysis, over the model's `evaluate` signature.

The signature gives sums and weights an example, as `bert_keras.objectives` says; a metric is a ratio of two totals.
Each comes with its 95 % confidence interval, two metrics of their own (`components.evaluator.results`): examples are
what is drawn, so that tokens of one text do not count as independent.

TFMA's own `compute_confidence_intervals` is not used: it draws 20 partitions without a seed, and where one of them
happens to be empty, in small splits and rare slices, it leaves out all metrics of the slice.
"""

from __future__ import annotations

import math

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma

from components.evaluator.results import HIGH, LOW

# Of the normal distribution: 95 % lie within.
_STANDARD_ERRORS = 1.96


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
            names = (name, name + LOW, name + HIGH)
            keys = [tfma.metrics.MetricKey(n, model_name=model_name, output_name=output_name) for n in names]
            numerator, denominator = f"{self.part}_{self.numerator}", f"{self.part}_weight"
            combiner = _RatioCombiner(keys, numerator, denominator, self.finish)
            return [tfma.metrics.MetricComputation(keys=keys, preprocessors=None, combiner=combiner)]

        super().__init__(tfma.metrics.merge_per_key_computations(computations), name=f"{self.part}_{self.figure}")

    @staticmethod
    def finish(ratio: float) -> float:
        """From the ratio, or a bound of it, to the metric."""
        return ratio


class _RatioCombiner(beam.CombineFn):
    """Sums two outputs of the model, a and b, over examples: their count, a, b, a squared, a times b, b squared."""

    def __init__(self, keys, numerator, denominator, finish):
        self.keys, self.numerator, self.denominator, self.finish = keys, numerator, denominator, finish

    def create_accumulator(self):
        return (0.0,) * 6

    def add_input(self, accumulator, inputs):
        # With a baseline TFMA keys the outputs by model name; without one it does not, and ignores the name.
        outputs = inputs.get_predictions(self.keys[0].model_name)
        a, b = (np.ravel(outputs[name]).astype(np.float64) for name in (self.numerator, self.denominator))
        return self.merge_accumulators([accumulator, (a.size, a.sum(), b.sum(), a @ a, a @ b, b @ b)])

    def merge_accumulators(self, accumulators):
        return tuple(float(sum(sums)) for sums in zip(*accumulators, strict=True))

    def extract_output(self, accumulator):
        count, a, b, aa, ab, bb = accumulator
        ratio = a / b if b else math.nan
        # The variance of a ratio R of two sums over n examples: n / (n - 1) times the sum of (a_i - R b_i)^2, over b^2.
        residuals = aa - 2.0 * ratio * ab + ratio * ratio * bb
        squared = residuals / (b * b) * count / (count - 1.0) if b and count > 1 else math.nan
        # Rounding can leave a little less than nothing; what is no number stays so.
        margin = _STANDARD_ERRORS * math.sqrt(0.0 if squared < 0.0 else squared)
        bounds = (ratio, ratio - margin, ratio + margin)
        return {key: self.finish(bound) for key, bound in zip(self.keys, bounds, strict=True)}


class _Accuracy(_Ratio):
    figure, numerator = "accuracy", "correct"

    @staticmethod
    def finish(ratio: float) -> float:
        """No bound of a share is outside of [0, 1]."""
        return min(max(ratio, 0.0), 1.0)  # in this order what is no number stays so


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
