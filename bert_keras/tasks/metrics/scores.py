"""Official scores of a task, under their official names.

SQuAD's are percentages, as its evaluators print them; GLUE's, SWAG's and the entities' are fractions, as scikit-learn,
scipy and seqeval return them (conlleval prints percentages).
"""

import functools
import importlib
import itertools
import math
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bert_keras.errors import InputError
from bert_keras.tasks.metrics.squad import letters_and_words, scores_of_answerable, scores_of_answered
from bert_keras.tasks.table import Task

# The positive label of MRPC (paraphrase) and QQP (duplicate).
POSITIVE = "1"


def score(
    task: Task, golds: Sequence[Any], answers: Sequence[Any], null_odds: Sequence[float | None] | None = None
) -> dict[str, float]:
    """Compute the scores of answers.

        task type        scores
        classification   those of `task.metrics`: accuracy; f1 of the label "1"; matthews_correlation
        multi_label      micro_f1: F1 of all decisions on all labels; macro_f1: the mean of the labels' F1, of those
                         that a gold or an answer has
        regression       pearson, spearman; of a similarity too
        ranking          mrr@10, ndcg@10: means over the queries, by the order of the answers (`_ranking_scores`)
        retrieval        recall@k: the share of rows whose gold is among the first k texts of the answer; mrr@10: the
                         mean of 1 / its place among them, 0 without it
        multiple_choice  accuracy
        span             squad1.1, mlqa: exact_match, f1; squad2.0: exact, f1, total, HasAns_exact, HasAns_f1,
                         HasAns_total, NoAns_..., and with null odds best_exact, best_exact_thresh, best_f1,
                         best_f1_thresh
        tagging          f1, precision, recall of entities as conlleval counts them (a type change or an I- after O
                         begins one: for IOB1, IOB2 and broken sequences); accuracy of tags

    Undefined values follow the libraries: matthews_correlation is 0 if all golds or all answers are equal; f1,
    precision and recall are 0 without positives; pearson and spearman are nan if all golds or all answers are equal,
    or for fewer than two rows.

    Args:
        golds: gold answers, one per row, in the form of `TaskRow.gold`.
        answers: a model's answers, in the same form and order; for spans "" for no answer, and None for a missing
            prediction: squad1.1 counts it as wrong, squad2.0 ignores it, as the official evaluators do.
        null_odds: squad2.0 only.
    """
    if not len(golds):
        raise InputError("there are no rows to score")
    for number, gold in enumerate(golds):
        if gold is None:
            raise InputError(f"row {number} (from 0) has no gold label, so it cannot be scored")
    if len(golds) != len(answers):
        raise ValueError(f"{len(golds)} golds and {len(answers)} answers")
    if task.kind == "span" and task.unanswerable:
        return scores_of_answerable(golds, answers, null_odds)
    if task.kind == "span":
        return scores_of_answered(golds, answers, *[letters_and_words] * task.by_letters)
    if task.kind == "tagging":
        return _entity_scores(golds, answers)
    if task.kind == "ranking":
        return _ranking_scores(golds, answers)
    return {name: float(METRICS[name](golds, answers)) for name in task.metrics}


def _entity_scores(golds: Sequence[list[str]], answers: Sequence[list[str]]) -> dict[str, float]:
    from seqeval.metrics import accuracy_score
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    golds, answers = list(golds), list(answers)
    precision, recall, f1, _ = precision_recall_fscore_support(golds, answers, average="micro", zero_division=0)
    scores = {"f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy_score(golds, answers)}
    return {name: float(value) for name, value in scores.items()}


def _ranking_scores(golds: Sequence[tuple[str, float]], answers: Sequence[float]) -> dict[str, float]:
    """Means over the queries: 1 / the place of the first relevant passage, 0 beyond the tenth; and the normalised gain.

    The gain is that of trec_eval's ndcg_cut: labels divided by log2(1 + place), of the first ten passages, as a share
    of the best order's. Of passages with equal answers the less relevant come first, so equal answers find nothing.
    """
    passages: dict[str, list[tuple[float, float]]] = {}
    for (query, label), answer in zip(golds, answers, strict=True):
        passages.setdefault(query, []).append((-answer, label))
    rankings = [[label for _, label in sorted(of_query)] for of_query in passages.values()]
    firsts = [next((place for place, label in enumerate(labels[:10], 1) if label > 0), math.inf) for labels in rankings]
    gains = [_gain(labels) / max(_gain(sorted(labels, reverse=True)), 1e-9) for labels in rankings]
    return {"mrr@10": statistics.fmean(1 / place for place in firsts), "ndcg@10": statistics.fmean(gains)}


def _gain(labels: Sequence[float]) -> float:
    return sum(label / math.log2(1 + place) for place, label in enumerate(labels[:10], 1))


def _of_scikit_learn(name: str, **options: Any) -> Callable[[Sequence[Any], Sequence[Any]], float]:
    return lambda golds, answers: getattr(importlib.import_module("sklearn.metrics"), name)(golds, answers, **options)


def _f1_of_labels(golds: Sequence[Sequence[str]], answers: Sequence[Sequence[str]], is_macro: bool) -> float:
    # Not scikit-learn's: it takes a single label for two classes.
    pairs = zip(golds, answers, strict=True)
    right = Counter(label for gold, answer in pairs for label in set(gold) & set(answer))
    given = Counter(itertools.chain(*golds, *answers))
    if is_macro:
        return sum(2 * right[label] / given[label] for label in given) / max(1, len(given))
    return 2 * right.total() / max(1, given.total())


def _correlation(golds: Sequence[float], answers: Sequence[float], name: str) -> float:
    from scipy import stats

    if len(golds) < 2:
        return float("nan")
    with warnings.catch_warnings():
        # scipy warns of constant input, which gives nan (see `score`).
        warnings.simplefilter("ignore")
        return getattr(stats, name)(golds, answers)[0]


def _recall(golds: Sequence[str], answers: Sequence[Sequence[str]], k: int) -> float:
    return sum(gold in answer[:k] for gold, answer in zip(golds, answers, strict=True)) / len(golds)


def _reciprocal_rank(golds: Sequence[str], answers: Sequence[Sequence[str]]) -> float:
    ranked = zip(golds, answers, strict=True)
    return sum(1 / (1 + answer.index(gold)) if gold in answer else 0.0 for gold, answer in ranked) / len(golds)


METRICS: dict[str, Callable[[Sequence[Any], Sequence[Any]], float]] = {
    "accuracy": _of_scikit_learn("accuracy_score"),
    "f1": _of_scikit_learn("f1_score", pos_label=POSITIVE, zero_division=0),
    "matthews_correlation": _of_scikit_learn("matthews_corrcoef"),
    "micro_f1": functools.partial(_f1_of_labels, is_macro=False),
    "macro_f1": functools.partial(_f1_of_labels, is_macro=True),
    "pearson": functools.partial(_correlation, name="pearsonr"),
    "spearman": functools.partial(_correlation, name="spearmanr"),
    "mrr@10": _reciprocal_rank,
    "recall@1": functools.partial(_recall, k=1),
    "recall@10": functools.partial(_recall, k=10),
}
