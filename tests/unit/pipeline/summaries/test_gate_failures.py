"""Sentences from the records of what the gate refused."""

import dataclasses
import json

import pytest

from components.evaluator.gate_failures import GateFailure
from pipeline.summaries.gate_failures import failures_of, reasons, sentence

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
