"""The summary's arithmetic and its words on what the gate refused."""

import json
import math

import pytest
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import validation_result_pb2

from pipeline import summary
from pipeline.objective_parts import PARTS
from pipeline.summary import data_line, gate_failures, nsp_against_chance


def test_chance_is_the_commoner_answer():
    # 400 pairs, 60 % random: chance 0.6, standard error sqrt(0.6 * 0.4 / 400) = 0.0244949.
    result = nsp_against_chance(0.65, 400, 0.6)
    assert result["nsp_chance"] == 0.6
    assert result["nsp_standard_error"] == pytest.approx(0.0244949, abs=1e-7)
    assert result["nsp_above_chance"] is True
    assert nsp_against_chance(0.65, 400, 0.4) == {**result, "nsp_chance": pytest.approx(0.6)}


@pytest.mark.parametrize(("accuracy", "above"), [(0.5 + 2.01 * 0.05, True), (0.5 + 1.99 * 0.05, False), (0.3, False)])
def test_above_chance_by_two_standard_errors(accuracy, above):
    # 100 pairs, half random: standard error sqrt(0.25 / 100) = 0.05.
    assert nsp_against_chance(accuracy, 100, 0.5)["nsp_above_chance"] is above


@pytest.mark.parametrize("accuracy", [math.nan, 1.0])
def test_no_pairs_are_not_above_chance(accuracy):
    assert nsp_against_chance(accuracy, 0, 0.5)["nsp_above_chance"] is False


@pytest.fixture
def validation(monkeypatch):
    """A validation result that `gate_failures` reads."""
    result = validation_result_pb2.ValidationResult()
    monkeypatch.setattr(summary.tfma, "load_validation_result", lambda path: result)
    return result


def test_nothing_missed(validation):
    validation.metric_validations_per_slice.add()
    assert gate_failures("evaluation") == []


def test_each_miss_in_words(validation):
    of_slice = validation.metric_validations_per_slice.add()

    def miss(name, value, **threshold):
        failure = of_slice.failures.add()
        failure.metric_key.name, failure.metric_key.is_diff = name, "change_threshold" in threshold
        failure.metric_value.double_value.value = value
        failure.metric_threshold.CopyFrom(tfma.MetricThreshold(**threshold))

    miss("mlm_perplexity", 123.456, value_threshold=tfma.GenericValueThreshold(upper_bound={"value": 100.0}))
    miss("nsp_accuracy", 0.45, value_threshold=tfma.GenericValueThreshold(lower_bound={"value": 0.5}))
    miss(
        "mlm_perplexity",
        2.5,
        change_threshold=tfma.GenericChangeThreshold(
            direction=tfma.MetricDirection.LOWER_IS_BETTER, relative={"value": 0.05}
        ),
    )
    assert gate_failures("evaluation") == [
        "mlm_perplexity: value 123.5 (at most 100 is asked)",
        "nsp_accuracy: value 0.45 (at least 0.5 is asked)",
        "mlm_perplexity: change against the last blessed model +2.5 (at most +5.0% of its value is asked)",
    ]


def test_the_figures_of_the_data_in_a_line():
    def figure(name, label, value):
        return {"name": name, "of": "", "label": label, "value": value, "minimum": 0, "maximum": 1, "remedy": ""}

    figures = [
        figure("documents", "documents", 14707),
        figure("masked_fraction", "masked tokens", 0.15494),
        figure("fill_fraction", "filled positions", None),
    ]
    assert data_line(figures) == "documents 14,707, masked tokens 15.49%"


FIGURES = {
    "unigram_perplexity": 400.0, "mlm_perplexity": 80.0, "mlm_accuracy": 0.3, "lm_perplexity": 50.0, "lm_accuracy": 0.4,
    "sbo_perplexity": 100.0, "sbo_accuracy": 0.25, "disc_loss": 0.2, "disc_accuracy": 0.9, "nsp_accuracy": 0.8,
    "nsp_chance": 0.6, "nsp_standard_error": 0.05, "nsp_above_chance": True, "disc_least_original": 0.85,
}  # fmt: skip
PERPLEXITY = "perplexity {}, 1/{} of the unigram model's 400.0; accuracy {}"


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        (
            "mlm_nsp",
            {
                "masked LM": PERPLEXITY.format("80.0", "5.0", "30.0%"),
                "next sentence": "80.0% (chance 60.0% ± 5.0%): learned",
            },
        ),
        ("mlm", {"masked LM": PERPLEXITY.format("80.0", "5.0", "30.0%")}),
        ("left_to_right", {"next token": PERPLEXITY.format("50.0", "8.0", "40.0%")}),
        (
            "span_boundary",
            {
                "masked LM": PERPLEXITY.format("80.0", "5.0", "30.0%"),
                "span boundary": PERPLEXITY.format("100.0", "4.0", "25.0%"),
            },
        ),
        (
            "electra",
            {
                "generator": PERPLEXITY.format("80.0", "5.0", "30.0%"),
                "discriminator": "loss 0.200; accuracy 90.0% (at least 85.0% if all were called original)",
            },
        ),
    ],
)
def test_what_was_learned_in_words(objective, told):
    assert {part.name: summary._learned(part, FIGURES) for part in PARTS[objective]} == told


def test_what_is_reached_without_reading(tmp_path):
    """61 of 100 pairs are random; at most 150 of 1,000 tokens are replaced. Of other objectives there is nothing."""
    counts = {"sequences": 100, "random_next": 61, "masked": 150, "real_tokens": 1000}
    (tmp_path / "example_spec.json").write_text(json.dumps({"counts": {"eval": counts}}))
    found = summary._without_reading({"mlm_accuracy": 0.3, "nsp_accuracy": 0.8}, str(tmp_path))
    assert found == nsp_against_chance(0.8, 100, 0.61)
    found = summary._without_reading({"mlm_accuracy": 0.3, "disc_accuracy": 0.9}, str(tmp_path))
    assert found == {"disc_least_original": 0.85}
    assert summary._without_reading({"lm_accuracy": 0.3}, str(tmp_path)) == {}


VERDICT = {"blessed": True, "checked": True, "problems": [], "answers": 40, "memory_mb": 612.4, "load_seconds": 3.21}
OUTCOME = {
    "blessed": True, "gate_failures": [], "intervals": {"accuracy": [0.8512, 0.9]},
    "serving": VERDICT | {"latency_ms": {"a": 2.0, "b": 3.456}},
    "slices": [{"by": "label", "of": "0", "metrics": {"accuracy": 0.75, "example_count": 1200.0}, "intervals": {}}],
    "pushed_version": "17", "served_version": "17",
    "stage_states": {}, "seconds_by_stage": {},
}  # fmt: skip


def test_how_sure_the_figures_are_and_what_the_server_did_are_told():
    assert summary.outcome_rows(OUTCOME) == {
        "gate": "blessed",
        "95 % sure": "accuracy 0.8512 to 0.9",
        "label 0": "accuracy 0.75 (1,200 rows)",
        "serving": "40 answers as trained, 95 % within 3.46 ms (b); 612 MiB; loaded in 3.2 s",
        "pushed": "version 17; serving 17",
        "stages": "",
    }


def test_what_a_refused_model_never_came_to_is_left_out():
    """Neither parts, nor intervals, nor a server that was not started."""
    refused = OUTCOME | {"blessed": False, "gate_failures": ["serving: nothing is recorded"], "slices": []}
    refused |= {"intervals": {}, "serving": VERDICT | {"answers": 0, "latency_ms": {}}, "pushed_version": None}
    rows = summary.outcome_rows(refused)
    assert rows == {"gate": "NOT blessed: serving: nothing is recorded", "pushed": "nothing; serving 17", "stages": ""}
    (part,) = OUTCOME["slices"]
    many = [part | {"of": str(label)} for label in range(77)] + [part | {"by": "length", "of": "up to 32"}]
    rows = summary.outcome_rows(OUTCOME | {"slices": many})
    assert not [name for name in rows if name.startswith("label")]
    assert rows["length up to 32"] == "accuracy 0.75 (1,200 rows)"
