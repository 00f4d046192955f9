"""The report of small fabricated fine-tunings of each task type: no pipeline runs, TFX is not imported."""

import dataclasses
import math
import os
import re

import pytest

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import task_of
from pipeline.report.figures.tables import confusion
from pipeline.report.figures.wrong_answers import MAX_CHARACTERS, MAX_WORDS, _neighbourhood, shortened, wrong_answers
from pipeline.report.score_format import figure, score_form
from tests.support.golden import check_golden
from tests.support.pipeline.fabricated_run import failed
from tests.support.pipeline.fabricated_task_run import KINDS, FabricatedTask, texts
from tests.support.pipeline.report_reading import check_stands_alone, lines, words


@pytest.fixture
def fabricate(tmp_path, monkeypatch):
    return lambda name, folder="run": FabricatedTask(name, tmp_path / folder, monkeypatch)


def labelled(name):
    return dataclasses.replace(task_of(name), labels=KINDS[name][0])


@pytest.mark.parametrize("name", KINDS)
def test_the_page_of_each_kind(fabricate, name):
    fabricated = fabricate(name)
    html = fabricated.write()
    check_stands_alone(html)
    check_golden(lines(html), __file__, name)


@pytest.mark.parametrize("name", ["sst-2", "sts-b", "codah"])
def test_rows_of_several_files_may_have_the_same_id(fabricate, name):
    fabricated = fabricate(name)
    own_ids = lines(fabricated.write())
    fabricated.rows = [dataclasses.replace(row, row_id="0") for row in fabricated.rows]
    fabricated.write_rows()
    assert lines(fabricated.write()) == re.sub(r"\brow \d", "row 0", own_ids)


def test_the_page_shows_no_path_of_the_machine_and_is_reproducible(fabricate, tmp_path):
    fabricated = fabricate("sst-2")
    fabricated.restart([0.8, 0.9])
    first = fabricated.write()
    assert not re.search(rf"{tmp_path}|/somewhere|/home/someone", first)
    assert fabricated.write() == first
    another = fabricate("sst-2", "another/place")
    another.restart([0.8, 0.9])
    assert another.write() == first


PARTS = [
    {"by": "length", "of": "up to 32", "metrics": {"accuracy": 0.5, "example_count": 1234.0},
     "intervals": {"accuracy": [0.25, 0.75]}},
    {"by": "source", "of": "<b>news</b>", "metrics": {"accuracy": 0.25, "example_count": 1.0}, "intervals": {}},
]  # fmt: skip


def test_slices_are_a_table(fabricate):
    fabricated = fabricate("sst-2")
    assert "slices of the held-out split" not in words(fabricated.write())
    fabricated.summary["slices"] = PARTS
    html = fabricated.write()
    check_stands_alone(html)
    assert (
        "2 slices of the held-out split Lengths are in tokens, of all texts of a row before truncation. In brackets "
        "the 95 % confidence interval. Part Rows Accuracy length up to 32 1,234 50.0% (25.0% to 75.0%) "
        "source &lt;b&gt;news&lt;/b&gt; 1 25.0%"
    ) in words(html)


def test_the_thresholds_of_slices(fabricate):
    """One that is missed is told once, like one whose part has no rows, which is not judged."""
    fabricated = fabricate("sst-2")
    bounds = ["length=up to 32:0.4", "source=<b>news</b>:0.3", "label=7:0.1"]
    fabricated.summary["recipe"]["gate"]["min_slice_scores"] = bounds
    failures = [
        failed("accuracy", "value", slice=("source", "<b>news</b>"), value=0.25, direction="at least", bound=0.3),
        failed(None, "empty", slice=("label", "7")),
    ]
    fabricated.summary |= {"slices": PARTS, "blessed": False, "pushed_version": None, "gate_failures": failures}
    text = words(fabricated.write())
    assert "Accuracy of length up to 32, value ✓ passed 50.0% at least 40%" in text
    assert "Accuracy of source &lt;b&gt;news&lt;/b&gt;, value ✗ missed 25.0% at least 30%" in text
    assert "Accuracy of label 7, value not judged no rows at least 10%" in text
    assert text.count("✗ missed") == 1 and text.count("in the slice label 7, which has a threshold") == 1
    assert "accuracy of source &lt;b&gt;news&lt;/b&gt;: 0.25 (threshold: at least 0.3)" in text


@pytest.mark.parametrize(
    ("name", "score", "baseline", "decrease", "kind", "reason", "row"),
    [
        ("sst-2", 0.25, None, 0.0, "value", "accuracy: 0.25 (threshold: at least 0.3)",
         "Accuracy, change not judged no earlier comparable model must not fall"),
        ("sst-2", 0.5, 0.75, 0.01, "change",
         "accuracy: 0.5, the baseline model&#39;s is 0.75 (threshold: a change of at least -0.01)",
         "Accuracy, value ✓ passed 50.0% at least 30%"),
        ("squad1.1", 46.7, 40.0, -10.0, "change",
         "f1: 46.7, the baseline model&#39;s is 40 (threshold: a change of at least +10)",
         "F1, value ✓ passed 46.7% at least 0.3%"),
        ("sts-b", math.nan, 0.5, 0.02, "value", "spearman: nan (threshold: at least 0.3)",
         "Spearman correlation, change ✓ passed no score from 0.500 may fall by at most 0.02"),
        ("cola", 0.1, 0.2, 0.0, "value", "matthews_correlation: 0.1 (threshold: at least 0.3)",
         "Matthews correlation, change ✓ passed \N{MINUS SIGN}0.100 from 0.200 must not fall"),
    ],
)  # fmt: skip
def test_a_refusal_has_reasons(fabricate, name, score, baseline, decrease, kind, reason, row):
    fabricated = fabricate(name)
    fabricated.summary["scores"][fabricated.metric] = score
    fabricated.summary["recipe"]["gate"]["max_score_decrease"] = decrease
    fabricated.baseline = baseline and {fabricated.metric: baseline}
    missed = {"value": {"bound": 0.3}, "change": {"baseline": baseline, "allowed_change": -decrease}}[kind]
    missed = failed(fabricated.metric, kind, value=score, direction="at least", **missed)
    fabricated.summary |= {
        "blessed": False, "pushed_version": None, "served_version": "16",
        "gate_failures": [missed],
    }  # fmt: skip
    text = words(fabricated.write())
    assert f"✗ Not blessed, not pushed {reason}" in text and "Being served: still version 16" in text
    assert "To try: " in text and "see docs/finetuning.md" in text
    assert row in text and text.count("✗ missed") == 1


def test_restarts(fabricate):
    fabricated = fabricate("sst-2")
    fabricated.restart([0.8, 0.9, 0.7])
    text = words(fabricated.write())
    # sqrt((0 + 0.01 + 0.01) / 2)
    assert "Accuracy 80.0% ± 10.0 points over 3 seeds" in text
    assert "seed 11 80.0% seed 12 chosen 90.0% seed 13 70.0%" in text
    fabricated.restart([0.8, math.nan])
    fabricated.summary["restarts"] |= {"mean": 0.8, "deviation": None}
    assert "Accuracy 80.0% without seed 12 over 2 seeds" in words(fabricated.write())


def test_an_ensemble(fabricate):
    fabricated = fabricate("squad1.1")
    fabricated.restart([80.0, 90.0], ensemble=92.0)
    text = words(fabricated.write())
    assert "seed 11 chosen 80.0% 80.0% seed 12 chosen 90.0% 90.0% ensemble exported 92.0% 92.0%" in text
    assert "640 rows by each of 2 models that answer together, 3 epochs" in text


@pytest.mark.parametrize(
    ("share", "said"), [(None, "not judged 80.0% of 50.0% no bound"), (0.7, "passed 80.0% of 50.0% at least 70%")]
)
def test_a_student_is_beside_its_teacher(fabricate, share, said):
    fabricated = fabricate("sst-2")
    fabricated.summary["recipe"]["gate"]["min_share_of_teacher"] = share
    costs = {"model": {"cpu_ms": 1.5, "megabytes": 20.0}, "teacher": {"cpu_ms": 6.0, "megabytes": 50.0}}
    figures = {"metric": "accuracy", "model": 0.4, "scores": {"accuracy": 0.5}, "min_share": share, "costs": costs}
    fabricated.summary["teacher"] = figures
    html = fabricated.write()
    check_stands_alone(html)
    text = words(html)
    assert f"Accuracy, teacher {said}" in text or f"Accuracy, teacher ✓ {said}" in text
    assert (
        "Accuracy 40.0% 50.0% 80.0%" in text
        and "CPU ms a row 1.5 6 25.0%" in text
        and "MB of weights 20 50 40.0%" in text
    )
    assert 'aria-label="Share of the teacher&#39;s: Accuracy 80.0%; CPU ms a row 25.0%; MB of weights 40.0%"' in html


def test_a_search(fabricate):
    fabricated = fabricate("cola")
    # Batch 16: 5e-05 with 2 and 3 epochs, 2e-05 with 2 and 3; then batch 32.
    fabricated.search([0.1, 0.2, None, 0.3, 0.5, 0.4, 0.3, math.nan])
    text = words(fabricated.write())
    assert "Matthews correlation 0.500, the best of 8: batch 32, learning rate 5e-05, 2 epochs." in text
    assert "Score 32 5e-05 2 0.500 32 5e-05 3 0.400" in text and "3 no score" in text
    # What was trained is what was found.
    assert "640 rows, 2 epochs: 28 steps of 32, learning rate 5e-05." in text
    assert "The best of the search took the place of training.train_batch_size, " in text


def test_the_curves_and_the_scores_of_all_splits(fabricate):
    fabricated = fabricate("squad2.0")
    fabricated.scores["test"] = {"f1": 12.0, "exact": 10.0, "best_f1_thresh": -1.5, "NoAns_total": 1234}
    html = fabricated.write()
    text = words(html)
    assert html.count('class="picture"') == 5
    # The last line of the log, the official scores, does not hide the evaluation of that step.
    assert (
        "Accuracy of starts by training step: training 75% at step 20, 75% at step 28; held out 75% at step 28" in html
    )
    assert "28 0.500 75.0% 75.0%" in text
    assert "f1 33.3% 12.0% exact 33.3% 10.0%" in text
    assert "NoAns_total 1 1,234" in text and "best_f1_thresh \N{MINUS SIGN}1.500" in text


def test_confusion(fabricate):
    text = words(fabricate("sst-2").write())
    # Three rows are 0, of which two are taken for 1.
    assert "0 1 Rows 0 1 33% 2 67% 3 1 0 0% 1 100% 1" in text
    labels = [f"l{number}" for number in range(13)]
    many = confusion(labels, ["l0", "l0", "l1", "l2", "l9"], ["l1", "l1", "l0", "l2", "l8"])
    assert many.pairs == [("l0", "l1", 2), ("l1", "l0", 1), ("l9", "l8", 1)] and not many.labels


def test_many_labels_give_a_list_of_mistakes(fabricate):
    fabricated = fabricate("sst-2")
    fabricated.summary["labels"] = [str(number) for number in range(13)]
    assert "Most frequent mistakes among 13 labels. Right Model’s Rows 0 1 2" in words(fabricated.write())


def test_many_wrong_rows_are_sampled_evenly():
    rows = texts(*((f"text {number}", "0") for number in range(100)))
    found = wrong_answers(labelled("sst-2"), rows, ["1"] * 100)
    assert found.headline == "Answered wrongly: 100 of 100 held-out rows"
    assert found.note == "20 of them, evenly over the held-out rows."
    assert [row_id for row_id, _ in found.rows] == [str(number) for number in range(0, 100, 5)]
    assert wrong_answers(labelled("sst-2"), rows, ["0"] * 100).rows == []


def test_long_texts_are_shortened():
    long = " ".join(map(str, range(5000)))
    assert len(shortened(long)) == MAX_CHARACTERS + 3 and shortened(long).endswith(long[-150:])
    rows = texts((long, ["O"] * 4000 + ["B-PER"] + ["O"] * 999))
    ((_, (right, said)),) = wrong_answers(labelled("ner"), rows, [["O"] * 5000]).rows
    assert "".join(piece.text for piece in right.pieces).startswith("… 3988 3989 ")
    assert [(piece.text, piece.note) for piece in right.pieces if piece.mark] == [("4000", "PER, missed")]
    assert "".join(piece.text for piece in said.pieces).split()[-2:] == [str(3988 + MAX_WORDS - 1), "…"]


def test_a_context_is_shown_around_its_answers():
    context = "Rome " + "x " * 400 + "Paris" + " y" * 300 + " Rome Rome" + " z" * 300
    row = TaskRow(
        "a", {"question": "Where?", "context": context}, {"answers": [{"text": "Paris", "answer_start": 805}]}
    )
    ((_, (_, shown, *_)),) = wrong_answers(labelled("squad1.1"), [row], ["Rome"]).rows
    assert [(p.text, p.mark) for p in shown.pieces if p.mark] == [("Paris", "right"), ("Rome", "wrong")]
    text = "".join(piece.text for piece in shown.pieces)
    # Of three the one that is nearest to the right answer.
    assert "Rome Rome" in text and shown.pieces[-2].text.startswith(" Rome z")
    assert text.startswith("… x") and text.endswith("z …") and text.count("…") == 3 and len(text) < 700
    assert "".join(p.text for p in _neighbourhood("wordsword " * 60, [(300, 309, "right")])).startswith("… wordsword ")


def test_an_answer_inside_a_longer_right_one_is_shown_once():
    context = "a " * 200 + "b c " * 200 + "d " * 200
    pieces = _neighbourhood(context, [(400, 1200, "right"), (404, 405, "wrong")])
    assert [(len(p.text), p.mark) for p in pieces if p.mark] == [(4, "right"), (1, "right wrong"), (603, "right")]


def test_a_missing_file_is_one_line(fabricate):
    fabricated = fabricate("ner")
    os.remove(fabricated.predictions)
    with pytest.raises(InputError, match=r"predictions\.txt: a file of run .* is gone; bert-tfx finetune with a new"):
        fabricated.write()
    fabricated.write_rows()
    os.remove(fabricated.shard)
    with pytest.raises(InputError, match=r"Split-eval: a file of run .* is gone"):
        fabricated.write()
    fabricated.run = dataclasses.replace(fabricated.run, id="2027-later")
    with pytest.raises(InputError, match=r"has not finished .* run the same bert-tfx finetune command to resume"):
        fabricated.write()
    assert not os.path.exists(os.path.join(fabricated.run_dir, "report.html"))


@pytest.mark.parametrize(
    ("kind", "name", "value", "written"),
    [
        ("classification", "f1", 0.8935, "89.3%"),
        ("span", "exact", 80.84, "80.8%"),
        ("span", "HasAns_total", 5928.0, "5,928"),
        ("span", "best_exact_thresh", -2.25, "\N{MINUS SIGN}2.250"),
        ("classification", "matthews_correlation", -0.05, "\N{MINUS SIGN}0.050"),
        ("regression", "pearson", math.nan, "no score"),
        ("span", "NoAns_f1", None, ""),
    ],
)
def test_scores_are_written_as_the_field_does(kind, name, value, written):
    assert figure(kind, name, value) == written


def test_a_score_without_a_note_has_a_plain_one():
    form = score_form("classification", "balanced_accuracy")
    assert (form.title, form.note.format(rows=7)) == ("Balanced accuracy", "on 7 held-out rows.")


def test_bounds_and_differences():
    share, odds = score_form("tagging", "f1"), score_form("regression", "pearson")
    assert (share.bound(0.55), share.amount(0.01), share.amount(0.005)) == ("55%", "1 point", "0.5 points")
    assert (odds.bound(0.5), odds.amount(0.02), odds.difference(0.0125)) == ("0.5", "0.02", "+0.013")
    assert (share.axis(0.912), odds.axis(-0.5)) == ("91.2%", "\N{MINUS SIGN}0.5")
