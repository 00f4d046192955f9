"""What the gate refused, in sentences and with advice, and a task's summary."""

import dataclasses
import json

import pytest

from components.evaluator.gate_failures import GateFailure
from pipeline.summaries.gate_failures import advice, failures_of, reasons, sentence
from pipeline.summaries.task import restart_rows

LENGTH = ("length", "33 to 64")
SENTENCES = [
    (
        GateFailure("mlm_perplexity", "value", value=123.456, direction="at most", bound=100.0),
        "mlm_perplexity: 123.5 (threshold: at most 100)",
    ),
    (
        GateFailure("accuracy", "value", LENGTH, value=0.45, direction="at least", bound=0.5),
        "accuracy of length 33 to 64: 0.45 (threshold: at least 0.5)",
    ),
    (
        GateFailure(
            "mlm_perplexity", "change", value=42.0, direction="at most", baseline=40.0, allowed_change=0.02,
            relative=True,
        ),
        "mlm_perplexity: 42, the baseline model's is 40 (threshold: a change of at most +2.0%)",
    ),
    (
        GateFailure(
            "f1", "change", value=80.0, direction="at least", baseline=81.5, allowed_change=-1.0, relative=False
        ),
        "f1: 80, the baseline model's is 81.5 (threshold: a change of at least -1)",
    ),
    (
        GateFailure("accuracy", "chance", value=0.75, bound=0.74, standard_errors=0.5),
        "accuracy: 0.75 is not better than chance, 0.74, by two standard errors (+0.5); gate.allow_chance=true would "
        "allow it",
    ),
    (
        GateFailure("accuracy", "teacher", value=0.81, direction="at least", bound=0.95, baseline=0.9),
        "accuracy: 0.81 is 90.0% of the teacher's 0.9 (threshold: at least 95.0%)",
    ),
    (GateFailure(None, "empty", LENGTH), "no held-out rows are in the slice length 33 to 64, which has a threshold"),
]  # fmt: skip


@pytest.mark.parametrize(("failure", "expected"), SENTENCES)
def test_a_failure_as_a_sentence(failure, expected):
    assert sentence(failure) == expected


def test_records_survive_json():
    failures = [failure for failure, _ in SENTENCES]
    summary = {"gate_failures": [dataclasses.asdict(of) for of in failures], "serving": {"problems": ["too slow"]}}
    read = json.loads(json.dumps(summary))
    assert failures_of(read) == failures
    assert reasons(read) == [*(said for _, said in SENTENCES), "serving: too slow"]


def failure(metric, kind, value=0.5):
    return dataclasses.asdict(GateFailure(metric, kind, value=value))


PRETRAIN = [failure("mlm_perplexity", "value", 400.0), failure("mlm_accuracy", "value", 0.1)]


@pytest.mark.parametrize(
    ("workflow", "failures", "problems", "expected"),
    [
        (
            "pretrain",
            [failure("mlm_perplexity", "chance", 400.0), PRETRAIN[0]],
            [],
            ["perplexity stuck at the unigram"],
        ),
        ("pretrain", [failure("nsp_accuracy", "chance")], [], ["next sentences are not learned"]),
        ("pretrain", PRETRAIN, [], ["more steps"]),
        (
            "pretrain",
            [failure("mlm_perplexity", "change", 50.0)],
            ["encode: too slow"],
            ["the baseline model", "a smaller model"],
        ),
        ("pretrain", [failure("mlm_accuracy", "teacher")], [], ["more steps, a larger student"]),
        ("pretrain", [failure("mlm_perplexity", "value", 1e304)], [], ["the model diverged"]),
        (
            "finetune",
            [failure("accuracy", "chance"), failure("accuracy", "value")],
            [],
            ["it has not learned from the"],
        ),
        ("finetune", [failure("accuracy", "value")], [], ["more rows or epochs"]),
        ("finetune", [failure("accuracy", "change")], [], ["the baseline model"]),
        ("finetune", [], [], []),
    ],
)
def test_each_cause_has_one_line_with_a_link(workflow, failures, problems, expected):
    found = advice({"workflow": workflow, "gate_failures": failures, "serving": {"problems": problems}})
    assert len(found) == len(expected)
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start) and "see docs/" in line


def report(scores, ensemble=None, chosen=(8,)):
    named = {str(seed): {"accuracy": score} for seed, score in scores.items()}
    figures = {"mean": 0.7, "deviation": 0.08**0.5}
    return {"metric": "accuracy", "scores": named, **figures, "chosen": list(chosen), "ensemble": ensemble}


def test_restarts_in_words():
    assert restart_rows(report({8: 0.9})) == {}
    rows = restart_rows(report({7: 0.5, 8: 0.9}))
    assert rows["restarts"] == "accuracy 0.7 ± 0.2828, by seed 7: 0.5, 8: 0.9; chosen: seed 8"
    assert "optimistic" in rows["note"]
    left_out = restart_rows(report({7: 0.5, 8: None, 9: 0.9}))["restarts"]
    assert "7: 0.5, 8: no score, 9: 0.9; chosen: seed 8; mean and deviation are of the seeds with a score" in left_out
    together = restart_rows(report({7: 0.5, 8: 0.9, 9: 0.7}, {"accuracy": 0.95}, (8, 9)))
    assert {name: together[name] for name in ("seed 8", "seed 9", "ensemble")} == {
        "seed 8": "accuracy 0.9",
        "seed 9": "accuracy 0.7",
        "ensemble": "accuracy 0.95: seeds 8, 9",
    }
    assert "seed 7" not in together
