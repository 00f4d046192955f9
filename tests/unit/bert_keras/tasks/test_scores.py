"""Scores of labels, numbers, choices and tags; every value is computed by hand beside it."""

import math
import random

import pytest

from bert_keras.errors import InputError
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.table import TASKS, task_of


def test_classification():
    # Two true positives, one false negative, one true negative, one false positive.
    golds, answers = ["1", "1", "1", "0", "0"], ["1", "1", "0", "0", "1"]
    # F1 = 2 x 2 / (2 x 2 + 1 + 1); Matthews = (2 x 1 - 1 x 1) / sqrt(3 x 3 x 2 x 2).
    assert score(task_of("mrpc"), golds, answers) == pytest.approx({"f1": 2 / 3, "accuracy": 3 / 5})
    assert score(task_of("cola"), golds, answers) == pytest.approx({"matthews_correlation": 1 / 6, "accuracy": 3 / 5})


def test_the_positive_label_is_1():
    # Of the label 0 the F1 would be 2 x 2 / (4 + 1) = 0.8.
    assert score(task_of("qqp"), ["0", "0", "1"], ["0", "0", "0"])["f1"] == 0.0


def test_accuracy_of_names():
    golds = ["neutral", "entailment", "contradiction", "neutral"]
    assert score(task_of("mnli"), golds, ["neutral", "neutral", "contradiction", "entailment"]) == {"accuracy": 0.5}
    assert score(task_of("ag-news"), ["World", "Sports"], ["World", "World"]) == {"accuracy": 0.5}


def test_constant_answers():
    assert score(task_of("cola"), ["1", "0"], ["1", "1"]) == {"matthews_correlation": 0.0, "accuracy": 0.5}
    for golds, answers in (([1.0, 2.0], [3.0, 3.0]), ([1.0, 1.0], [2.0, 3.0]), ([1.0], [1.0])):
        scores = score(task_of("sts-b"), golds, answers)
        assert set(scores) == {"pearson", "spearman"} and all(math.isnan(value) for value in scores.values())


def test_regression():
    # Deviations -1, 0, 1 and -4/3, -1/3, 5/3: Pearson = 3 / sqrt(2 x 42/9). The order is the same: Spearman 1.
    scores = score(task_of("sts-b"), [1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    assert scores == pytest.approx({"spearman": 1.0, "pearson": 3 / math.sqrt(28 / 3)})
    # Ranks 1, 2.5, 2.5 and 1, 3, 2: deviations -1, .5, .5 and -1, 1, 0; 1.5 / sqrt(1.5 x 2).
    assert score(task_of("sts-b"), [1.0, 4.0, 4.0], [0.0, 9.0, 2.0])["spearman"] == pytest.approx(1.5 / math.sqrt(3))


def test_multiple_choice():
    assert score(task_of("swag"), [0, 1, 2, 3], [0, 1, 2, 0]) == {"accuracy": 0.75}


def test_ranking():
    """Two queries, rows mixed. By answers the labels of a are 0, 1, 0, 2, those of b 3 after ten others."""
    a = [(["a", label], answer) for label, answer in ((2, -1.0), (0, 3.0), (1, 0.5), (0, 0.0))]
    b = [(["b", 3 if number == 10 else 0], -float(number)) for number in range(11)]
    golds, answers = zip(*a[:2], *b, *a[2:], strict=True)
    # The gain of a is 1 / log2(3) + 2 / log2(5), the best 2 / log2(2) + 1 / log2(3).
    gain = (1 / math.log2(3) + 2 / math.log2(5)) / (2 + 1 / math.log2(3))
    assert score(task_of("rerank"), golds, answers) == pytest.approx({"mrr@10": 0.5 / 2, "ndcg@10": gain / 2})
    # Of equal answers the relevant one is last; a query without a relevant passage counts 0.
    golds = [["a", 1], ["a", 0], ["a", 0], ["b", 0]]
    assert score(task_of("rerank"), golds, [1.0] * 4) == pytest.approx({"mrr@10": 1 / 3 / 2, "ndcg@10": 0.25})


def test_gains_are_those_of_scikit_learn():
    ndcg_score = pytest.importorskip("sklearn.metrics").ndcg_score
    rng = random.Random(0)
    labels, answers = (
        [[draw() for _ in range(30)] for _ in range(8)] for draw in (lambda: rng.randrange(4), rng.random)
    )
    golds = [[str(query), label] for query, those in enumerate(labels) for label in those]
    found = score(task_of("rerank"), golds, [answer for those in answers for answer in those])
    assert found["ndcg@10"] == pytest.approx(ndcg_score(labels, answers, k=10))


def test_several_labels():
    # a: one right, given 2 + 1; b: one right, given 1 + 2; c: never right, 1 + 0; d: never right, 0 + 1.
    golds, answers = [["a", "b"], ["a", "c"], []], [["a", "b"], [], ["b", "d"]]
    # F1 = 2 x right / (in golds + in answers).
    expected = {"micro_f1": 2 * 2 / 8, "macro_f1": (2 / 3 + 2 / 3 + 0 + 0) / 4}
    assert score(task_of("text-labels"), golds, answers) == pytest.approx(expected)
    # Of a single label scikit-learn's micro F1 would be the accuracy.
    assert score(task_of("text-labels"), [["a"], [], []], [["a"], ["a"], []])["micro_f1"] == pytest.approx(2 / 3)
    assert score(task_of("text-labels"), [[], []], [[], []]) == {"micro_f1": 0.0, "macro_f1": 0.0}


def test_several_labels_as_scikit_learn_counts_them():
    metrics, preprocessing = (pytest.importorskip(f"sklearn.{name}") for name in ("metrics", "preprocessing"))
    rng = random.Random(0)
    golds, answers = ([[label for label in "abcde" if rng.random() < 0.3] for _ in range(40)] for _ in range(2))
    binary = preprocessing.MultiLabelBinarizer().fit(golds + answers).transform
    expected = {
        f"{name}_f1": metrics.f1_score(binary(golds), binary(answers), average=name) for name in ("micro", "macro")
    }
    assert score(task_of("text-labels"), golds, answers) == pytest.approx(expected)


# Gold tags, predicted tags, then: entities that are right, predicted, gold; tags that are right, all tags.
TAGGED = {
    "IOB1 for IOB2": ("B-PER I-PER O", "I-PER I-PER O", 1, 1, 1, 2, 3),
    "I- after O": ("O B-LOC", "O I-LOC", 1, 1, 1, 1, 2),
    "I- first in the sentence": ("B-PER|B-PER", "B-PER|I-PER", 2, 2, 2, 1, 2),
    "a type change without B-": ("B-PER B-LOC", "B-PER I-LOC", 2, 2, 2, 1, 2),
    "a type change within": ("B-PER I-PER I-PER", "B-PER I-LOC I-PER", 0, 3, 1, 2, 3),
    "B- within, as IOB1 begins a second": ("B-PER I-PER", "I-PER B-PER", 0, 2, 1, 0, 2),
    "IOB1 gold, two that touch": ("I-PER B-PER", "B-PER B-PER", 2, 2, 2, 1, 2),
    "O within": ("B-PER I-PER I-PER", "B-PER O I-PER", 0, 2, 1, 2, 3),
    "too long": ("B-PER O", "B-PER I-PER", 0, 1, 1, 1, 2),
    "the wrong type": ("B-PER I-PER", "B-LOC I-LOC", 0, 1, 1, 0, 2),
    "types with a hyphen": ("B-creative-work O", "B-creative-work O", 1, 1, 1, 2, 2),
    "one of two, of three": ("B-PER B-LOC B-ORG O", "B-PER O O B-ORG", 1, 2, 3, 1, 4),
    "none predicted": ("B-PER O", "O O", 0, 0, 1, 1, 2),
    "none at all": ("O O", "O O", 0, 0, 0, 2, 2),
}


@pytest.mark.parametrize("case", TAGGED)
def test_entities_as_conlleval_counts_them(case):
    gold, predicted, right, found, there, right_tags, tags = TAGGED[case]
    golds, answers = ([sentence.split() for sentence in text.split("|")] for text in (gold, predicted))
    precision, recall = (right / count if count else 0.0 for count in (found, there))
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    expected = {"f1": f1, "precision": precision, "recall": recall, "accuracy": right_tags / tags}
    assert score(task_of("ner"), golds, answers) == pytest.approx(expected)


def test_rows_that_cannot_be_scored_are_refused():
    with pytest.raises(InputError, match="no rows"):
        score(task_of("rte"), [], [])
    with pytest.raises(InputError, match=r"row 1 \(from 0\) has no gold label"):
        score(task_of("rte"), ["entailment", None], ["entailment", "entailment"])
    with pytest.raises(ValueError, match="1 golds and 2 answers"):
        score(task_of("rte"), ["entailment"], ["entailment", "entailment"])
    with pytest.raises(ValueError, match="inconsistent"):
        score(task_of("ner"), [["O", "O"]], [["O"]])


ANSWERS = {
    "regression": [1.0, 2.0],
    "ranking": [1.5, -1.0],
    "multi_label": [["a", "b"], []],
    "multiple_choice": [0, 1],
    "span": ["a cat", "a dog"],
    "tagging": [["B-PER"], ["O"]],
    "similarity": [0.5, 0.9],
    "retrieval": [["a", "b"], ["b", "a"]],
}


@pytest.mark.parametrize("name", TASKS)
def test_the_right_answers_score_best_by_the_metrics_of_the_table(name):
    task = TASKS[name]
    answers = ANSWERS.get(task.kind, ["1", "0"])
    golds = [{"answers": [{"text": answer}]} for answer in answers] if task.kind == "span" else answers
    golds = [first for first, _ in answers] if task.kind == "retrieval" else golds
    golds = [["who?", float(answer > 0)] for answer in answers] if task.kind == "ranking" else golds
    scores = score(task, golds, answers)
    assert [scores[metric] for metric in task.metrics] == pytest.approx(
        [100 if task.kind == "span" else 1] * len(task.metrics)
    )


def test_a_task_is_found_with_or_without_its_hyphen():
    assert task_of("sst2") is task_of("sst-2") is TASKS["sst-2"]
    assert task_of("stsb").name == "sts-b" and task_of("agnews").name == "ag-news" and task_of("text-pair").pair
    with pytest.raises(InputError, match=r"sst3: no such task; there are mnli"):
        task_of("sst3")
