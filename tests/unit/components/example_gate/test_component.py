"""ExampleGate: a verdict, or an error for anomalies and figures outside their limits."""

import dataclasses
import json

import pytest
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import encode_split_names

from bert_keras.errors import StageError
from components.artifacts import ExampleVerdict
from components.example_gate.component import VERDICT_FILE, Executor
from components.example_gate.limits import DataLimits, check_limits

COUNTS = {
    "instances": 100, "random_next": 55, "tokens": 1000, "unknown_tokens": 30,
    "real_tokens": 1000, "slots": 1250, "masked": 150,
}  # fmt: skip
SPEC = {"objective": "mlm_nsp", "masking": {"when": "static"}, "counts": {"train": COUNTS, "eval": COUNTS}}
CORPUS = {split: {"documents": 500, "duplicates": 0} for split in ("train", "eval")}
LIMITS = DataLimits(max_unknown_fraction=0.05)


@pytest.fixture
def judge(tmp_path):
    """`judge(train=anomalies, eval=anomalies)` runs the executor on the artifacts of the stages before it."""

    def judge(limits=LIMITS, **splits):
        artifacts = {
            "anomalies": standard_artifacts.ExampleAnomalies(),
            "documents": standard_artifacts.Examples(),
            "examples": standard_artifacts.Examples(),
        }
        for name, artifact in artifacts.items():
            (tmp_path / name).mkdir()
            artifact.uri = str(tmp_path / name)
        (tmp_path / "documents" / "corpus.json").write_text(json.dumps(CORPUS))
        (tmp_path / "examples" / "example_spec.json").write_text(json.dumps(SPEC))
        artifacts["anomalies"].split_names = encode_split_names(list(splits))
        for split, found in splits.items():
            folder = tmp_path / "anomalies" / f"Split-{split}"
            folder.mkdir(parents=True)
            (folder / "SchemaDiff.pb").write_bytes(found.SerializeToString())
        verdict = ExampleVerdict()
        verdict.uri = str(tmp_path / "verdict")
        properties = {"limits": json.dumps(dataclasses.asdict(limits))}
        Executor().Do({name: [artifact] for name, artifact in artifacts.items()}, {"verdict": [verdict]}, properties)

    return judge


def anomalies(**descriptions):
    found = anomalies_pb2.Anomalies()
    for name, description in descriptions.items():
        found.anomaly_info[name].description = description
    return found


def test_the_verdict_for_valid_examples_has_all_figures_and_limits(tmp_path, judge):
    judge(train=anomalies(), eval=anomalies())
    verdict = json.loads((tmp_path / "verdict" / VERDICT_FILE).read_text())
    assert verdict == {
        "anomalies": 0,
        "splits": ["train", "eval"],
        "figures": [dataclasses.asdict(figure) for figure in check_limits(SPEC, CORPUS, LIMITS)],
    }
    (unknown,) = (figure for figure in verdict["figures"] if figure["name"] == "unknown_fraction")
    assert (unknown["value"], unknown["minimum"], unknown["maximum"]) == (0.03, None, 0.05)


def test_all_figures_outside_their_limits_are_reported(tmp_path, judge):
    with pytest.raises(StageError) as caught:
        judge(DataLimits(max_unknown_fraction=0.01, min_fill_fraction=0.9), train=anomalies(), eval=anomalies())
    message = str(caught.value)
    assert message.startswith("the data are outside the recipe's limits: examples: share of [UNK] is 3%, the recipe ")
    assert "allows at most 1% (data.max_unknown_fraction): " in message
    assert "; examples: share of filled positions is 80%, the recipe allows at least 90%" in message
    assert "\n" not in message
    assert not (tmp_path / "verdict").exists()


def test_anomalies_of_any_split_stop_the_run(tmp_path, judge):
    with pytest.raises(StageError) as caught:
        judge(train=anomalies(), eval=anomalies(segment_ids="too long.", input_ids="out of range."))
    assert str(caught.value) == (
        "the examples violate their schema: eval: input_ids: out of range.; eval: segment_ids: too long."
    )
    assert not (tmp_path / "verdict").exists()


def test_anomalies_and_figures_are_reported_together(judge):
    with pytest.raises(StageError) as caught:
        judge(DataLimits(max_unknown_fraction=0.01), train=anomalies(input_ids="out of range."), eval=anomalies())
    assert str(caught.value).startswith(
        "the examples violate their schema: train: input_ids: out of range.; the data are outside the recipe's limits: "
    )


def test_an_anomaly_of_the_whole_data_set_stops_the_run(judge):
    found = anomalies()
    found.dataset_anomaly_info.description = "too few examples."
    with pytest.raises(StageError, match=r"train: too few examples\.$"):
        judge(train=found, eval=anomalies())
