"""The stage that tries a model in a server of its own: a real one, a process, over gRPC."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import time

import grpc
import psutil
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2, prediction_service_pb2_grpc
from tfx.components.util import model_utils
from tfx.types import standard_artifacts

from bert_keras.errors import StageError
from bert_keras.exported_files import write_warmup_requests
from bert_keras.servable_ops import save_servable
from components.serving_validator import bound_command, served_model
from components.serving_validator.component import Executor
from components.serving_validator.limits import ServingLimits
from components.serving_validator.served_model import NotServable

TEXTS = [tf.TensorSpec([None], tf.string, name="text")]
WARMUP = "assets.extra/tf_serving_warmup_requests"


class Toy(tf.Module):
    """Lengths as shares of `by`, which is in a variables file."""

    def __init__(self):
        super().__init__()
        self.by = tf.Variable(3.0)

    @tf.function(input_signature=TEXTS)
    def share(self, text):
        return {"share": tf.cast(tf.strings.length(text), tf.float32) / self.by, "text": text}

    @tf.function(input_signature=TEXTS)
    def evaluate(self, examples):
        return {"length": tf.strings.length(examples)}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    model, folder = Toy(), tmp_path_factory.mktemp("exported") / "Format-Serving"
    signatures = {"serving_default": model.share, "share": model.share, "evaluate": model.evaluate}
    save_servable(model, str(folder), signatures)
    write_warmup_requests(
        str(folder), signatures, [(name, {"text": ["a", "1234567"]}) for name in ("serving_default", "share")]
    )
    return folder


@pytest.fixture
def model(tmp_path, exported):
    """A copy, for a test to change."""
    return shutil.copytree(exported, tmp_path / "model" / "Format-Serving")


@pytest.fixture
def validate(tmp_path):
    """`validate(model folder)` runs the executor on a blessed model; returns the artifact it gives, and the verdict."""

    def validate(folder, blessed=1, **limits):
        model, quality, blessing = (
            of()
            for of in (standard_artifacts.Model, standard_artifacts.ModelBlessing, standard_artifacts.InfraBlessing)
        )
        model.uri, blessing.uri = str(folder.parent), str(tmp_path / "blessing")
        quality.set_int_custom_property("blessed", blessed)
        Executor().Do(
            {"model": [model], "model_blessing": [quality]},
            {"blessing": [blessing]},
            {"limits": json.dumps(dataclasses.asdict(ServingLimits(**limits)))},
        )
        return blessing, json.loads((tmp_path / "blessing" / "verdict.json").read_text())

    return validate


def no_process_is_left():
    return not [child for child in psutil.Process().children() if bound_command.__name__ in " ".join(child.cmdline())]


def test_a_good_model_is_blessed_as_pusher_understands_it(tmp_path, model, validate):
    blessing, verdict = validate(model, repetitions=5)
    assert model_utils.is_infra_validated(blessing)
    assert (tmp_path / "blessing" / "INFRA_BLESSED").read_text() == ""
    assert verdict["blessed"] and verdict["problems"] == [] and verdict["answers"] == 10
    assert set(verdict["latency_ms"]) == {"serving_default", "share"}
    # TensorFlow alone takes more.
    assert verdict["memory_mb"] > 100 and verdict["load_seconds"] > 0
    assert no_process_is_left()


def test_a_model_that_does_not_answer_as_trained_is_refused_with_the_reason(tmp_path, model, validate):
    """The trainer's answer is changed, and the limits are those of a machine from the future."""
    path = str(model / WARMUP)
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record)
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator()
    ]
    logs[0].predict_log.response.outputs["share"].CopyFrom(tf.make_tensor_proto([1 / 3, 2.3334]))
    with tf.io.TFRecordWriter(path) as writer:
        for log in logs:
            writer.write(log.SerializeToString())
    blessing, verdict = validate(model, repetitions=1, max_memory_mb=1)
    assert not model_utils.is_infra_validated(blessing)
    different, memory = verdict["problems"]
    assert different.startswith("serving_default: share is 2.9e-05 from the trainer's (at most 1e-05 is asked")
    assert memory.startswith("memory: ") and memory.endswith("MiB (at most 1 is asked: serving.max_memory_mb)")
    assert (tmp_path / "blessing" / "INFRA_NOT_BLESSED").read_text().splitlines() == verdict["problems"]
    assert blessing.get_string_custom_property("reason") == "; ".join(verdict["problems"])
    assert no_process_is_left()


def test_a_model_that_does_not_load_is_refused_with_the_servers_reason(model, validate):
    with (model / "variables/variables.index").open("r+b") as file:
        file.truncate(10)
    blessing, verdict = validate(model)
    assert not model_utils.is_infra_validated(blessing)
    (problem,) = verdict["problems"]
    assert problem.startswith("the server does not load it: ") and "\n" not in problem
    assert no_process_is_left()


@pytest.fixture
def no_server(monkeypatch):
    monkeypatch.setattr(served_model.subprocess, "Popen", lambda *_, **__: pytest.fail("a server was started"))


def test_a_signature_that_nothing_is_recorded_of_is_refused(no_server, model, validate):
    (model / WARMUP).unlink()
    _, verdict = validate(model)
    assert verdict["problems"] == [f"nothing is recorded of serving_default, share in {WARMUP}"]


def test_what_the_quality_gate_refused_is_not_tried(no_server, model, validate):
    blessing, verdict = validate(model, blessed=0)
    assert not model_utils.is_infra_validated(blessing)
    assert (verdict["blessed"], verdict["checked"], verdict["problems"]) == (False, False, [])


def test_a_server_that_does_not_start_is_a_failure_and_no_verdict(tmp_path, monkeypatch, model, validate):
    """Nothing is cached of it: the same command tries again."""
    monkeypatch.setattr(bound_command, "__name__", "no.such.module")
    with pytest.raises(StageError, match=r"no server to try the model in: bert-tfx serve ended \(exit code 1\)"):
        validate(model)
    assert not (tmp_path / "blessing").exists()


def test_a_server_does_not_outlive_who_started_it(tmp_path):
    """Even after kill -9. The folder is empty: the server waits, without TensorFlow."""
    words = [sys.executable, "-m", bound_command.__name__, "serve", "--model-dir", str(tmp_path)]
    words += ["--grpc-port", "0", "--rest-port", "0"]
    code = f"""
import subprocess, time
server = subprocess.Popen({words}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
server.stdout.readline()
print(server.pid, flush=True)
time.sleep(600)
"""
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        server = psutil.Process(int(starter.stdout.readline()))
        assert server.is_running()
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        starter.stdout.close()
    end = time.monotonic() + 30
    # What nobody waits for stays as a zombie where process 1 does not look after it.
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_server_that_dies_of_a_request_is_told(exported):
    """In place of a server: a process that ends, and a connection to nobody."""
    served = served_model.ServedModel(str(exported), 1.0)
    served._process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    with grpc.insecure_channel("127.0.0.1:9") as channel:
        served._prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = predict_pb2.PredictRequest()
        request.model_spec.signature_name = "share"
        with pytest.raises(NotServable, match=r"^share is not answered: the server died of it \(signal 9\)$"):
            served.predict(request, 5.0)
