"""Metrics of pre-trained models for TensorFlow Model Analysis, computed from the model's `evaluate` signature.

The signature returns sums and weights for each example (`bert_keras.objectives`); a metric is a ratio of two totals.
Each has a 95 % confidence interval, stored as two more metrics (`components.evaluator.results`). Examples are the
sampling unit: tokens of one text are not independent. Judged metrics also come with chance, the score of the best guess
(`bert_keras.objectives.unigram.guessed_sums`), and the number of standard errors above it.

TFMA's own `compute_confidence_intervals` is not used: it draws 20 partitions without a seed, and if one of them is
empty, in small splits and rare slices, it drops all metrics of the slice.
"""

from __future__ import annotations

import math

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma

from bert_keras.objectives.table import PARTS
from components.evaluator.chance import over_chance
from components.evaluator.results import CHANCE, HIGH, LOW, OVER_CHANCE, metric_keys

# 95 % of the normal distribution lie within.
_STANDARD_ERRORS = 1.96


class _Ratio(tfma.metrics.Metric):
    """finish(sum of one output / sum of another) over the examples of a slice.

    Subclasses name the part of the objective (`bert_keras.objectives.table.Part`): its sums are `part`_nll,
    `part`_correct and `part`_weight.
    """

    part: str
    figure: str
    numerator: str
    guesses = 0

    def __init__(self):
        # TFMA reads the parameter names of this function, so it is not a method.
        def computations(name: str, model_name: str = "", output_name: str = ""):
            ends = ("", LOW, HIGH, CHANCE, OVER_CHANCE) if self.guesses else ("", LOW, HIGH)
            keys = metric_keys([name + end for end in ends], model_name, output_name)
            numerator, denominator = f"{self.part}_{self.numerator}", f"{self.part}_weight"
            combiner = _RatioCombiner(keys, numerator, denominator, self.finish, self.guesses)
            return [tfma.metrics.MetricComputation(keys=keys, preprocessors=None, combiner=combiner)]

        super().__init__(tfma.metrics.merge_per_key_computations(computations), name=f"{self.part}_{self.figure}")

    @staticmethod
    def finish(ratio: float) -> float:
        """Convert the ratio, or a bound of it, to the metric."""
        return ratio


class _RatioCombiner(beam.CombineFn):
    """Sums two outputs of the model, a and b, over examples: the count, b and b squared; and for a, and for its
    improvement over each guess, the sum, the sum of squares, and the sum of products with b.

    Args:
        keys: keys of the metric, of its interval's bounds and, with guesses, of chance and the distance from it.
        numerator: name of a; the guesses of it are `NUMERATOR_guessed`.
        denominator: name of b.
        finish: converts a ratio to the metric.
        guesses: number of guesses.
    """

    def __init__(self, keys, numerator, denominator, finish, guesses):
        self.keys, self.numerator, self.denominator, self.finish = keys, numerator, denominator, finish
        self.guesses = guesses

    def create_accumulator(self):
        return (0.0,) * (6 + 3 * self.guesses)

    def add_input(self, accumulator, inputs):
        # TFMA keys outputs by model name if there is a baseline; otherwise it ignores the name.
        outputs = inputs.get_predictions(self.keys[0].model_name)
        a, b = (np.ravel(outputs[name]).astype(np.float64) for name in (self.numerator, self.denominator))
        # The last blessed model may be from a version without guesses.
        guessed = outputs.get(f"{self.numerator}_guessed", np.full((a.size, self.guesses), math.nan))
        better = a[:, None] - np.reshape(guessed, (a.size, self.guesses)).astype(np.float64)
        sums = [a.size, b.sum(), b @ b, a.sum(), a @ a, a @ b]
        for d in better.T:
            sums += [d.sum(), d @ d, d @ b]
        return self.merge_accumulators([accumulator, sums])

    def merge_accumulators(self, accumulators):
        return tuple(float(sum(sums)) for sums in zip(*accumulators, strict=True))

    def extract_output(self, accumulator):
        count, b, bb, *of_numerators = accumulator
        ratios = [_ratio(count, b, bb, *of_numerators[start : start + 3]) for start in range(0, len(of_numerators), 3)]
        (ratio, error), *differences = ratios
        margin = _STANDARD_ERRORS * error
        values = [self.finish(bound) for bound in (ratio, ratio - margin, ratio + margin)]
        if differences:
            # A higher share is better, but a lower loss.
            sign = 1.0 if self.numerator.endswith("_correct") else -1.0
            difference, error = min((sign * difference, error) for difference, error in differences)
            values += [self.finish(ratio - sign * difference), over_chance(difference, ratio, error)]
        return dict(zip(self.keys, values, strict=True))


def _ratio(count: float, b: float, bb: float, a: float, aa: float, ab: float) -> tuple[float, float]:
    """a / b and its standard error, from the sums of a, b, their squares and their product over examples."""
    ratio = a / b if b else math.nan
    # Variance of the ratio R of two sums over n examples: n / (n - 1) times the sum of (a_i - R b_i)^2, over b^2.
    residuals = aa - 2.0 * ratio * ab + ratio * ratio * bb
    squared = residuals / (b * b) * count / (count - 1.0) if b and count > 1 else math.nan
    # Rounding can give a slightly negative number; NaN stays NaN.
    return ratio, math.sqrt(0.0 if squared < 0.0 else squared)


class _Accuracy(_Ratio):
    figure, numerator = "accuracy", "correct"

    @staticmethod
    def finish(ratio: float) -> float:
        """Clip a bound to [0, 1]."""
        return min(max(ratio, 0.0), 1.0)  # in this order NaN stays NaN


class _Loss(_Ratio):
    figure, numerator = "loss", "nll"


class _Perplexity(_Ratio):
    """exp of the mean negative log-likelihood."""

    figure, numerator = "perplexity", "nll"

    @staticmethod
    def finish(ratio: float) -> float:
        return math.exp(min(ratio, 700.0))


_FIGURES: dict[str, type[_Ratio]] = {"accuracy": _Accuracy, "loss": _Loss, "perplexity": _Perplexity}


def class_name(metric: str) -> str:
    """Name of a metric's class in this module, by which TFMA finds it.

    >>> class_name("mlm_perplexity")
    'MlmPerplexity'
    """
    return "".join(word.capitalize() for word in metric.split("_"))


# A class a metric without arguments: nested JSON in an EvalConfig breaks ML Metadata on PostgreSQL.
for _part in (part for parts in PARTS.values() for part in parts):
    for _figure in _part.metrics:
        _name = class_name(f"{_part.key}_{_figure}")
        _fields = {"part": _part.key, "guesses": _part.guesses, "__module__": __name__}
        globals()[_name] = type(_name, (_FIGURES[_figure],), _fields)
