"""The stage that lets no bad example through: ExampleValidator's anomalies in, a verdict or a stop out."""

import json

import pytest
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import encode_split_names

from bert_keras.errors import StageError
from components.artifacts import ExampleVerdict
from components.example_gate.component import VERDICT_FILE, Executor


@pytest.fixture
def judge(tmp_path):
    """`judge(train=anomalies, eval=anomalies)` runs the executor on what ExampleValidator would have written."""

    def judge(**splits):
        artifact, verdict = standard_artifacts.ExampleAnomalies(), ExampleVerdict()
        artifact.uri, verdict.uri = str(tmp_path / "anomalies"), str(tmp_path / "verdict")
        artifact.split_names = encode_split_names(list(splits))
        for split, found in splits.items():
            folder = tmp_path / "anomalies" / f"Split-{split}"
            folder.mkdir(parents=True)
            (folder / "SchemaDiff.pb").write_bytes(found.SerializeToString())
        Executor().Do({"anomalies": [artifact]}, {"verdict": [verdict]}, {})

    return judge


def anomalies(**descriptions):
    found = anomalies_pb2.Anomalies()
    for name, description in descriptions.items():
        found.anomaly_info[name].description = description
    return found


def test_no_anomalies_make_a_verdict(tmp_path, judge):
    judge(train=anomalies(), eval=anomalies())
    assert json.loads((tmp_path / "verdict" / VERDICT_FILE).read_text()) == {
        "anomalies": 0,
        "splits": ["train", "eval"],
    }


def test_anomalies_of_any_split_stop_the_run(tmp_path, judge):
    with pytest.raises(StageError) as caught:
        judge(train=anomalies(), eval=anomalies(segment_ids="too long.", input_ids="out of range."))
    assert str(caught.value) == (
        "the examples break their schema: eval: input_ids: out of range.; eval: segment_ids: too long."
    )
    assert not (tmp_path / "verdict").exists()


def test_an_anomaly_of_the_whole_data_set_stops_the_run(judge):
    found = anomalies()
    found.dataset_anomaly_info.description = "too few examples."
    with pytest.raises(StageError, match=r"train: too few examples\.$"):
        judge(train=found, eval=anomalies())
