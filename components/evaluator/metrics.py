"""Metrics of pre-trained models for TensorFlow Model Analysis, computed from the model's `evaluate` signature.

The signature returns sums and weights for each example (`bert_keras.objectives`); a metric is a ratio of two totals.
Each has a 95 % confidence interval, stored as two more metrics (`components.evaluator.results`). Documents are the
sampling unit: rows of one document are not independent (docs/decisions/0043-standard-errors-are-of-documents.md).
Judged metrics also come with chance, the score of the best guess (`bert_keras.objectives.unigram.guessed_sums`), and
the number of standard errors above it.

TFMA's own `compute_confidence_intervals` is not used: it draws 20 partitions without a seed, and if one of them is
empty, in small splits and rare slices, it drops all metrics of the slice.
"""

import math
from collections.abc import Callable

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics.metric_types import StandardMetricInputsPreprocessor

from bert_keras.data.example_format import DOCUMENT_GROUP, DOCUMENT_GROUPS, DOCUMENT_PARTS
from bert_keras.objectives.table import PARTS
from components.evaluator.chance import margin_errors, over_chance, ratio_of_groups
from components.evaluator.results import CHANCE, HIGH, LOW, OVER_CHANCE, metric_keys


class _Ratio(tfma.metrics.Metric):
    """finish(sum of one output / sum of another) over the examples of a slice."""

    part: str  # key of a `bert_keras.objectives.table.Part`: its sums are `part`_nll, `part`_correct, `part`_weight
    figure: str
    numerator: str
    guesses: int
    finish: Callable[[float], float]  # converts the ratio, or a bound of it, to the metric

    def __init__(self):
        # TFMA reads the parameter names of this function, so it is not a method.
        def computations(name: str, model_name: str = "", output_name: str = ""):
            ends = ("", LOW, HIGH, CHANCE, OVER_CHANCE) if self.guesses else ("", LOW, HIGH)
            keys = metric_keys([name + end for end in ends], model_name, output_name)
            numerator, denominator = f"{self.part}_{self.numerator}", f"{self.part}_weight"
            combiner = _RatioCombiner(keys, numerator, denominator, self.finish, self.guesses)
            inputs = StandardMetricInputsPreprocessor(include_filter={tfma.FEATURES_KEY: {DOCUMENT_GROUP: {}}})
            return [tfma.metrics.MetricComputation(keys=keys, preprocessors=[inputs], combiner=combiner)]

        super().__init__(tfma.metrics.merge_per_key_computations(computations), name=f"{self.part}_{self.figure}")


class _RatioCombiner(beam.CombineFn):
    """Sums, float64 [groups of documents, 3 + guesses]: number of rows, outputs b and a, a's gain over each guess."""

    def __init__(self, keys, numerator, denominator, finish, guesses):
        self.keys, self.numerator, self.denominator, self.finish = keys, numerator, denominator, finish
        self.guesses = guesses

    def create_accumulator(self):
        return np.zeros((DOCUMENT_GROUPS * DOCUMENT_PARTS, 3 + self.guesses))

    def add_input(self, accumulator, inputs):
        # TFMA keys outputs by model name if there is a baseline; otherwise it ignores the name.
        outputs = inputs.get_predictions(self.keys[0].model_name)
        a, b = (np.ravel(outputs[name]).astype(np.float64) for name in (self.numerator, self.denominator))
        # The last blessed model may be from a version without guesses.
        guessed = outputs.get(f"{self.numerator}_guessed", np.full((a.size, self.guesses), math.nan))
        better = a[:, None] - np.reshape(guessed, (a.size, self.guesses)).astype(np.float64)
        groups = np.ravel(inputs[tfma.FEATURES_KEY][DOCUMENT_GROUP])
        np.add.at(accumulator, groups, np.column_stack([np.ones(a.size), b, a, better]))
        return accumulator

    def merge_accumulators(self, accumulators):
        return sum(accumulators, self.create_accumulator())

    def extract_output(self, accumulator):
        units = accumulator.reshape(DOCUMENT_GROUPS, DOCUMENT_PARTS, -1).sum(1)
        if np.count_nonzero(units[:, 0]) <= DOCUMENT_PARTS:  # the only case in which documents have several parts
            units = accumulator
        _, b, *of_numerators = units[units[:, 0] > 0].T
        (ratio, error), *differences = (ratio_of_groups(a, b) for a in of_numerators)
        margin = margin_errors(len(b)) * error
        values = [self.finish(bound) for bound in (ratio, ratio - margin, ratio + margin)]
        if differences:
            # A higher share is better, but a lower loss.
            sign = 1.0 if self.numerator.endswith("_correct") else -1.0
            difference, error = min((sign * difference, error) for difference, error in differences)
            values += [self.finish(ratio - sign * difference), over_chance(difference, ratio, error)]
        return dict(zip(self.keys, values, strict=True))


def _share(bound: float) -> float:
    return min(max(bound, 0.0), 1.0)  # in this order NaN stays NaN


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))


# The numerator of each figure, and the conversion of the ratio.
_FIGURES: dict[str, tuple[str, Callable[[float], float]]] = {
    "accuracy": ("correct", _share),
    "loss": ("nll", float),
    "perplexity": ("nll", _perplexity),
}


def class_name(metric: str) -> str:
    """Name of a metric's class in this module, by which TFMA finds it: MlmPerplexity for mlm_perplexity."""
    return "".join(word.capitalize() for word in metric.split("_"))


# A class a metric without arguments: nested JSON in an EvalConfig breaks ML Metadata on PostgreSQL.
for _part in (part for parts in PARTS.values() for part in parts):
    for _figure in _part.metrics:
        _name, (_numerator, _finish) = class_name(f"{_part.key}_{_figure}"), _FIGURES[_figure]
        _fields = {"part": _part.key, "figure": _figure, "guesses": _part.guesses, "__module__": __name__}
        globals()[_name] = type(_name, (_Ratio,), {**_fields, "numerator": _numerator, "finish": staticmethod(_finish)})
