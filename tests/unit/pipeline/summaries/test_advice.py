"""Advice for each cause of a refusal."""

import dataclasses

import pytest

from components.evaluator.gate_failures import GateFailure
from pipeline.summaries.advice import advice


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
