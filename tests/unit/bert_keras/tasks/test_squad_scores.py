"""SQuAD's scores: real systems' prediction files as the official evaluators score them, and the corners by hand."""

import json
import os
from pathlib import Path
from random import Random

import pytest

from bert_keras.errors import InputError
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.metrics.squad import (
    letters_and_words,
    normalized_tokens,
    scores_of_answerable,
    scores_of_answered,
)
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.submissions.squad import read_texts

DATA = os.environ.get("BERT_DATA_DIR")
SYSTEMS = {
    "squad1.1": ("dev-v1.1-even-articles.json", "v1.1_Logistic_Regression_Baseline_Stanford_Un"),
    "squad2.0": ("dev-v2.0-even-articles.json", "v2.0_nlnet_single_model_Microsoft_Research_As"),
}


def questions(path):
    for article in json.loads(path.read_text())["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield TaskRow(question["id"], {}, {"answers": question["answers"]})


@pytest.mark.skipif(not DATA, reason="BERT_DATA_DIR is not set")
@pytest.mark.parametrize("name", SYSTEMS)
def test_scores_of_real_systems_equal_the_official_evaluators(name):
    from bert_keras.tasks.table import task_of

    file, system = SYSTEMS[name]
    folder = Path(DATA, "squad")
    rows = list(questions(folder / file))
    answers = read_texts(rows, str(folder / "predictions" / f"{system}.json"))
    official = json.loads((folder / "predictions" / f"{system}.scores.json").read_text())
    assert len(rows) == official["total"] and answers.count(None) == official.get("missing_ids_scored_0", 0)
    scores = score(task_of(name), [row.gold for row in rows], answers)
    assert scores == {name: pytest.approx(official[name], abs=1e-6) for name in scores}
    assert (
        set(official) - set(scores)
        == {
            "squad1.1": {"total", "missing_ids_scored_0", "extra_ids_ignored"},
            "squad2.0": set(),
        }[name]
    )


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The  Cat's hat.", ["cats", "hat"]),
        ("an A-a the", ["aa"]),  # punctuation goes before articles do
        ("theatre, Anna", ["theatre", "anna"]),
        ("“quoted” – dash", ["“quoted”", "–", "dash"]),  # only ASCII punctuation
        ("a\u00a0b\n\tc", ["b", "c"]),
        ("!?", []),
        ("", []),
    ],
)
def test_normalized_tokens(text, tokens):
    assert normalized_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("《红楼梦》，The 1791年", ["红", "楼", "梦", "the", "1791", "年"]),  # as MLQA's script, "zh"
        ("2,000 件", ["2000", "件"]),
        ("トヨタの車", ["ト", "ヨ", "タ", "の", "車"]),
        ("“Élan” – a+b", ["élan", "ab"]),  # all punctuation, no articles, accents stay
        ("。！", []),
    ],
)
def test_words_and_letters(text, words):
    assert letters_and_words(text) == words


def test_mlqa_counts_letters_where_squad_counts_runs():
    from bert_keras.tasks.table import task_of

    golds, answers = [gold("红楼梦"), gold("曹雪芹")], ["《红楼梦》", "曹雪"]
    assert score(task_of("squad1.1"), golds, answers) == {"exact_match": 0.0, "f1": 0.0}
    assert score(task_of("mlqa"), golds, answers) == {"exact_match": 50.0, "f1": pytest.approx(100 * (1 + 4 / 5) / 2)}


def gold(*texts):
    return {"answers": [{"text": text} for text in texts]}


@pytest.mark.parametrize(
    ("texts", "answer", "exact", "f1"),
    [
        (["the red cat"], "Red cat!", 1, 1),
        # One of two is right: precision 1/2, recall 1/2.
        (["red cat"], "red dog", 0, 1 / 2),
        # Words are counted: "b" twice of three, twice of two: P 2/3, R 1.
        (["b b"], "b b b", 0, 4 / 5),
        # The best gold each: F1 with "x y z" is 2 x 2 / 5, with "x" 2 / 3.
        (["x", "x y z"], "x y", 0, 4 / 5),
        (["x"], "", 0, 0),
        (["x"], None, 0, 0),
        # v1.1 finds no word in common; v2.0 has no such gold.
        (["the"], "a", 1, 0),
    ],
)
def test_squad_1(texts, answer, exact, f1):
    # A second question that is right halves what is missing.
    scores = scores_of_answered([gold(*texts), gold("y")], [answer, "y"])
    assert scores == pytest.approx({"exact_match": 50 * (exact + 1), "f1": 50 * (f1 + 1)})


def test_squad_1_has_an_answer_to_every_question():
    with pytest.raises(InputError, match=r"question 1 \(from 0\) has no gold answer: score it as squad2.0"):
        scores_of_answered([gold("x"), gold()], ["x", ""])


@pytest.mark.parametrize(
    ("texts", "answer", "exact", "f1"),
    [
        (["the red cat"], "red dog", 0, 1 / 2),
        ([], "", 1, 1),
        ([], "the", 1, 1),  # normalises to nothing
        ([], "x", 0, 0),
        (["x"], "", 0, 0),
        (["the", "x"], "", 0, 0),  # a gold that normalises to nothing is dropped
        (["the"], "", 1, 1),  # and "" takes the place of the last
    ],
)
def test_squad_2(texts, answer, exact, f1):
    scores = scores_of_answerable([gold(*texts)], [answer])
    kind = "HasAns" if texts else "NoAns"
    whole = {"exact": 100 * exact, "f1": 100 * f1, "total": 1}
    assert scores == pytest.approx(whole | {f"{kind}_{name}": value for name, value in whole.items()})


def test_squad_2_leaves_out_missing_predictions():
    scores = scores_of_answerable([gold("x"), gold("y"), gold()], ["x", None, "z"])
    assert scores == {
        **{"exact": 50, "f1": 50, "total": 2},
        **{"HasAns_exact": 100, "HasAns_f1": 100, "HasAns_total": 1},
        **{"NoAns_exact": 0, "NoAns_f1": 0, "NoAns_total": 1},
    }
    with pytest.raises(InputError, match="no question has a prediction"):
        scores_of_answerable([gold("x")], [None])


GOLDS = [gold("Paris"), gold("the red cat"), gold(), gold(), gold("a b")]
GIVEN = ["Paris", "red dog", "", "x", "b"]
ODDS = [-3.0, -1.0, 2.0, 0.5, 1.5]


def test_thresholds_on_the_null_odds():
    scores = scores_of_answerable(GOLDS, GIVEN, ODDS)
    # Exact match 1, 0, 1, 0, 1 and F1 1, 1/2, 1, 0, 1; but the odds of the last are above 1: as if "", 0 and 0.
    assert scores["exact"] == pytest.approx(100 * 2 / 5) and scores["f1"] == pytest.approx(100 * 2.5 / 5)
    assert scores["HasAns_exact"] == pytest.approx(100 / 3) and scores["HasAns_f1"] == pytest.approx(50)
    assert scores["NoAns_exact"] == scores["NoAns_f1"] == 50
    # All unanswered: 2 right. By odds: +1 (3 right), +0 or +1/2 (3 or 3.5), -1 for "x", +1, 0 for "".
    assert scores["best_exact"] == pytest.approx(100 * 3 / 5) and scores["best_exact_thresh"] == -3.0
    assert scores["best_f1"] == pytest.approx(100 * 3.5 / 5) and scores["best_f1_thresh"] == -1.0


def test_the_best_threshold_may_be_above_the_limit():
    scores = scores_of_answerable([gold("x"), gold("y")], ["x", "y"], [1.5, 2.5])
    assert (scores["exact"], scores["best_exact"], scores["best_exact_thresh"]) == (0, 100, 2.5)


def test_the_best_threshold_is_the_best_of_all():
    """Every threshold is tried: an answer is given where the odds are not above it."""
    random = Random(1)
    golds = [gold("x", "y z") if random.random() < 0.5 else gold() for _ in range(60)]
    answers = [random.choice(["x", "y", "z y", "w", ""]) for _ in golds]
    odds = [random.uniform(-9, 0) for _ in golds]
    scores = scores_of_answerable(golds, answers, odds)
    for name in ("exact", "f1"):
        tried = {}
        for threshold in (-10.0, *odds):
            given = [answer if odd <= threshold else "" for answer, odd in zip(answers, odds, strict=True)]
            tried[threshold] = scores_of_answerable(golds, given)[name]
        assert scores[f"best_{name}"] == pytest.approx(max(tried.values()))
        assert tried[scores[f"best_{name}_thresh"]] == pytest.approx(max(tried.values()))


def test_no_threshold_is_better_than_none():
    scores = scores_of_answerable([gold(), gold("x")], ["y", "z"], [-5.0, 7.0])
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (50, 0.0)


def test_thresholds_leave_out_missing_predictions():
    scores = scores_of_answerable([*GOLDS, gold()], [*GIVEN, None], [*ODDS, None])
    assert scores["total"] == 5
    # The original begins with all questions that have no answer, three now, and divides by the five predicted.
    assert scores["best_exact"] == pytest.approx(100 * 4 / 5)
    with pytest.raises(ValueError, match=r"question 1 \(from 0\) has a prediction and no null odds"):
        scores_of_answerable([gold("x"), gold("y")], ["x", "y"], [0.0, None])
