"""A finished run as Kubeflow's artifacts: files at the places that the message names, and their metadata."""

import json

from pipeline.runners.kubeflow_artifacts import ARTIFACT_TYPES, _local_path, write_artifacts
from pipeline.runs.lineage import ArtifactRecord, Run, Stage

EXAMPLES = ArtifactRecord(2, "Examples", "/runs/a/artifacts/PretrainExampleGen/examples/4", {})
STAGE = Stage("PretrainExampleGen", "COMPLETE", 0.0, 1.0, {}, {}, {"examples": [EXAMPLES]})
RUN = Run("a.1", {STAGE.name: STAGE})
NUMBERS = {"mlm_perplexity": 32.5, "examples_train": 7}
SUMMARY = {**NUMBERS, "blessed": True, "pushed_version": "17", "x": float("nan"), "n": None}


def written(tmp_path, summary, run=RUN):
    """The metadata of each artifact, and the folder of their files."""
    folder = tmp_path / "outputs"
    outputs = {name: {"artifacts": [{"uri": f"{folder}/{name}"}]} for name in ARTIFACT_TYPES}
    message = {"outputs": {"artifacts": outputs, "outputFile": f"{tmp_path}/kfp/metadata.json"}}
    write_artifacts(json.dumps(message), run, summary, str(tmp_path / "run"))
    described = json.loads((tmp_path / "kfp/metadata.json").read_text())["artifacts"]
    return {name: about["artifacts"][0]["metadata"] for name, about in described.items()}, folder


def test_the_report_is_copied_and_the_data_named(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/report.html").write_text("<p>a page</p>")
    described, folder = written(tmp_path, SUMMARY)
    assert described.keys() == ARTIFACT_TYPES.keys()
    assert (folder / "report").read_text() == "<p>a page</p>"
    assert described["model"] == {"version": "17", "path": f"{tmp_path}/run/serving/17"}
    assert described["examples"] == {"path": EXAMPLES.uri} == json.loads((folder / "examples").read_text())


def test_metrics_are_the_finite_numbers(tmp_path):
    """Kubeflow's launcher refuses any other value, and with it the step."""
    assert written(tmp_path, SUMMARY)[0]["metrics"] == NUMBERS


def test_a_run_that_pushed_nothing_has_empty_artifacts(tmp_path):
    described, folder = written(tmp_path, {"new_text": False, "blessed": False}, Run("a.1", {}))
    assert described["model"] == described["examples"] == described["metrics"] == {}
    assert sorted(path.name for path in folder.iterdir()) == sorted(ARTIFACT_TYPES)


def test_the_local_place_of_a_uri_is_where_kubeflows_launcher_looks():
    assert _local_path("minio://mlpipeline/v2/a") == "/minio/mlpipeline/v2/a"
    assert _local_path("gs://bucket/a") == "/gcs/bucket/a" and _local_path("s3://bucket/a") == "/s3/bucket/a"
    assert _local_path("/here/a") == "/here/a"
