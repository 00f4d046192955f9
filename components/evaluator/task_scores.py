"""Metrics of fine-tuned models for TensorFlow Model Analysis: the official scores of each task.

Scores such as entity F1 or Spearman's correlation are not ratios of sums, so the answers themselves are collected: the
model's `evaluate` signature returns `gold` and `answer` of a row (`bert_keras.saved_model.task_signatures`) in a few
bytes.
"""

import hashlib
import json
import math
import random
import statistics
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics.metric_types import StandardMetricInputsPreprocessor

from bert_keras.tasks.answers import parse_answers
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.table import TASKS, Task, task_of
from components.evaluator.chance import guesses, margin_errors, over_chance
from components.evaluator.results import CHANCE, HIGH, LOW, OVER_CHANCE, metric_keys

# Groups of texts for the jackknife.
GROUPS = 20
# Contribution of a row to the accumulator: its gold as JSON, its answer as text, and its first text. Rows with the same
# text are not independent. For spans the text is the context, for the others a hash of it.
Row = tuple[bytes, bytes, bytes]
_CONTEXT, _TEXT = "context", "text"


class _TaskScore(tfma.metrics.Metric):
    """All official scores of a task, the bounds of their 95 % confidence intervals, and chance for the first score."""

    task: str

    def __init__(self):
        task = task_of(self.task)

        # TFMA reads the parameter names of this function, so it is not a method.
        def computations(name: str, model_name: str = "", output_name: str = ""):
            names = [metric + end for end in ("", LOW, HIGH) for metric in task.metrics]
            names += [task.metrics[0] + end for end in (CHANCE, OVER_CHANCE)]
            keys = metric_keys(names, model_name, output_name)
            # The texts of rows are not outputs of the model.
            text = _CONTEXT if task.kind == "span" else _TEXT
            inputs = StandardMetricInputsPreprocessor(include_filter={tfma.FEATURES_KEY: {text: {}}})
            combiner = ScoreCombiner(task, keys)
            return [tfma.metrics.MetricComputation(keys=keys, preprocessors=[inputs], combiner=combiner)]

        super().__init__(tfma.metrics.merge_per_key_computations(computations), name=task.metrics[0])


class ScoreCombiner(beam.CombineFn):
    """Collects the answers of all rows, then computes the scores.

    Confidence intervals are from a jackknife (Tukey 1958): the standard error of a score follows from the scores
    without each of 20 groups of texts with all their rows (the questions of a context, the hypotheses of a premise),
    assigned with a fixed seed; with fewer texts each is a group. The same holds for the difference from the best guess
    (`components.evaluator.chance`). TFMA's keys are: scores, lower bounds, upper bounds in the order of `task.metrics`,
    then chance for the first score and the number of standard errors above it.
    """

    def __init__(self, task: Task, keys: list[tfma.metrics.MetricKey]):
        self.task, self.keys = task, keys

    def create_accumulator(self) -> list[Row]:
        return []

    def add_input(self, accumulator, inputs):
        # TFMA keys outputs by model name if there is a baseline; otherwise it ignores the name.
        outputs = inputs.get_predictions(self.keys[0].model_name)
        columns = [np.ravel(outputs[name]).tolist() for name in ("gold", "answer")]
        if self.task.kind == "retrieval":  # the vectors of one row
            columns[1] = [np.asarray(outputs["answer"], "<f4").tobytes()]
        is_span = self.task.kind == "span"
        texts = np.ravel(inputs[tfma.FEATURES_KEY][_CONTEXT if is_span else _TEXT]).tolist()
        columns.append(texts if is_span else [hashlib.blake2b(text, digest_size=8).digest() for text in texts])
        accumulator.extend(zip(*columns, strict=True))
        return accumulator

    def merge_accumulators(self, accumulators):
        return [row for accumulator in accumulators for row in accumulator]

    def extract_output(self, accumulator):
        # Rows come in any order, and floating-point sums depend on it.
        rows = sorted(accumulator)
        golds = [json.loads(gold) for gold, _, _ in rows]
        answers = parse_answers(self.task.kind, golds, [answer for _, answer, _ in rows])
        texts = sorted({text for _, _, text in rows})
        random.Random(0).shuffle(texts)
        groups = min(GROUPS, len(texts))
        group_of = {text: number % groups for number, text in enumerate(texts)}
        parts = [
            [index for index, (_, _, text) in enumerate(rows) if group_of[text] != group]
            for group in range(groups if groups > 1 else 0)
        ]
        scores, without = self._scores(golds, answers), [self._scores(golds, answers, part) for part in parts]
        errors = {name: _standard_error([part[name] for part in without]) for name in self.task.metrics}
        margin = margin_errors(groups)
        ends = [scores[name] + sign * margin * errors[name] for sign in (-1, 1) for name in self.task.metrics]

        metric, *_ = self.task.metrics
        chance, guessed = 0.0, [0.0] * len(parts)
        contexts = [text.decode() for _, _, text in rows] if self.task.kind == "span" else []
        if of_guesses := guesses(self.task, golds, contexts):
            chance, best = max((self._scores(golds, guess)[metric], index) for index, guess in enumerate(of_guesses))
            guessed = [self._scores(golds, of_guesses[best], part)[metric] for part in parts]
        error = _standard_error([part[metric] - guess for part, guess in zip(without, guessed, strict=True)])
        above = over_chance(scores[metric] - chance, scores[metric], error)
        return dict(zip(self.keys, [*(scores[name] for name in self.task.metrics), *ends, chance, above], strict=True))

    def _scores(
        self, golds: Sequence[Any], answers: Sequence[Any], part: Sequence[int] | None = None
    ) -> dict[str, float]:
        """Scores of all rows, or of a subset."""
        if part is not None:
            golds, answers = ([values[index] for index in part] for values in (golds, answers))
        return {name: float(value) for name, value in score(self.task, golds, answers).items()}


def _standard_error(without: list[float]) -> float:
    """Standard error of a score, from the scores without each group; NaN if there are none."""
    groups = len(without)
    if groups < 2 or any(map(math.isnan, without)):
        return math.nan
    return math.sqrt((groups - 1) / groups * sum((value - statistics.fmean(without)) ** 2 for value in without))


def class_name(task: str) -> str:
    """Name of a task's metric class in this module, by which TFMA finds it, e.g. Score_squad1_1."""
    return "Score_" + "".join(c if c.isalnum() else "_" for c in task)


# One class per task, without arguments: nested JSON in an EvalConfig breaks ML Metadata on PostgreSQL.
for _name in TASKS:
    globals()[class_name(_name)] = type(class_name(_name), (_TaskScore,), {"task": _name, "__module__": __name__})
