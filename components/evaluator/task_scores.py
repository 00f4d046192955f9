"""The gate's metrics of fine-tuned models, for TensorFlow Model Analysis: the official scores of each task.

A score such as F1 over entities or Spearman's correlation is no ratio of sums, so the answers themselves are collected:
the model's `evaluate` signature gives a row's `gold` and `answer` (`bert_keras.tasks.served`), as few bytes each.
"""

from __future__ import annotations

import json
import math
import random
import statistics

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from scipy import stats

from bert_keras.tasks.answers import parse_answer
from bert_keras.tasks.scores import score
from bert_keras.tasks.table import TASKS, Task, task_of
from components.evaluator.results import HIGH, LOW

# Of rows that are left out together to see how a score varies.
GROUPS = 20
# What one row adds to the accumulator: its gold as JSON and its answer as text.
Row = tuple[bytes, bytes]


class _TaskScore(tfma.metrics.Metric):
    """All official scores of a task, and the ends of their 95 % confidence intervals.

    The metric is called like the first of them, which thresholds are about.
    """

    task: str

    def __init__(self):
        task = task_of(self.task)

        # TFMA reads the parameter names of this function, so it is no method.
        def computations(name: str, model_name: str = "", output_name: str = ""):
            names = [metric + end for end in ("", LOW, HIGH) for metric in task.metrics]
            keys = [tfma.metrics.MetricKey(n, model_name=model_name, output_name=output_name) for n in names]
            return [tfma.metrics.MetricComputation(keys=keys, preprocessors=None, combiner=ScoreCombiner(task, keys))]

        super().__init__(tfma.metrics.merge_per_key_computations(computations), name=task.metrics[0])


class ScoreCombiner(beam.CombineFn):
    """Collects the answers of all rows, then scores them.

    The intervals are a jackknife's: the scores without each of 20 groups of rows, drawn with one seed, tell the
    standard error of the score of all (Tukey 1958); of fewer rows each is a group.

    Args:
        task: whose scores.
        keys: keys of TFMA's: a score each, in the order of `task.metrics`, then the lower ends, then the upper ends.
    """

    def __init__(self, task: Task, keys: list[tfma.metrics.MetricKey]):
        self.task, self.keys = task, keys

    def create_accumulator(self) -> list[Row]:
        return []

    def add_input(self, accumulator, inputs):
        # With a baseline TFMA keys the outputs by model name; without one it does not, and ignores the name.
        outputs = inputs.get_predictions(self.keys[0].model_name)
        golds, answers = (np.ravel(outputs[name]).tolist() for name in ("gold", "answer"))
        accumulator.extend(zip(golds, answers, strict=True))
        return accumulator

    def merge_accumulators(self, accumulators):
        return [row for accumulator in accumulators for row in accumulator]

    def extract_output(self, accumulator):
        # Rows come in any order, and sums of floats depend on it.
        rows = sorted(accumulator)
        scores = self._scores(rows)
        random.Random(0).shuffle(rows)
        groups = min(GROUPS, len(rows))
        without = [
            self._scores([row for number, row in enumerate(rows) if number % groups != group])
            for group in range(groups if groups > 1 else 0)
        ]
        margins = [_margin([left[name] for left in without]) for name in self.task.metrics]
        found = [scores[name] for name in self.task.metrics]
        ends = [value + sign * margin for sign in (-1, 1) for value, margin in zip(found, margins, strict=True)]
        return dict(zip(self.keys, [*found, *ends], strict=True))

    def _scores(self, rows: list[Row]) -> dict[str, float]:
        golds = [json.loads(gold) for gold, _ in rows]
        found = score(self.task, golds, [parse_answer(self.task.kind, answer) for _, answer in rows])
        return {name: float(value) for name, value in found.items()}


def _margin(without: list[float]) -> float:
    """Half of the interval, from the scores without each group; not a number where there are none."""
    groups = len(without)
    if groups < 2 or any(map(math.isnan, without)):
        return math.nan
    variance = (groups - 1) / groups * sum((value - statistics.fmean(without)) ** 2 for value in without)
    return float(stats.t.ppf(0.975, groups - 1)) * math.sqrt(variance)


def class_name(task: str) -> str:
    """The name of a task's metric in this module: TFMA finds a metric by module and class, e.g. Score_squad1_1."""
    return "Score_" + "".join(c if c.isalnum() else "_" for c in task)


# A class a task without arguments: nested JSON in an EvalConfig breaks ML Metadata on PostgreSQL.
for _name in TASKS:
    globals()[class_name(_name)] = type(class_name(_name), (_TaskScore,), {"task": _name, "__module__": __name__})
