"""ServingValidator with a real server process, over gRPC, and its comparison of answers without one."""

import contextlib
import dataclasses
import itertools
import json
import shutil
import signal
import socket
import subprocess
import sys
import time

import grpc
import numpy as np
import psutil
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2, prediction_service_pb2_grpc
from tfx.components.util import model_utils
from tfx.types import standard_artifacts

from bert_keras.errors import StageError
from bert_keras.saved_model.saved_model_files import write_warmup_requests
from bert_keras.saved_model.servable_ops import save_servable
from components import processes
from components.serving_validator import component as check
from components.serving_validator import served_model
from components.serving_validator.component import Executor, differences
from components.serving_validator.limits import ServingLimits
from components.serving_validator.served_model import NotServable
from serving.server import Server
from tests.support.processes import has_ended

TEXTS = [tf.TensorSpec([None], tf.string, name="text")]
WARMUP = "assets.extra/tf_serving_warmup_requests"


class Toy(tf.Module):
    """Lengths divided by `by`, which is in a variables file."""

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
    """A copy for a test to modify."""
    return shutil.copytree(exported, tmp_path / "model" / "Format-Serving")


@pytest.fixture
def validate(tmp_path):
    """`validate(model folder)` runs the executor on a blessed model; returns its artifact and the verdict."""

    def validate(folder, blessed=1, **limits):
        model, quality, blessing = (
            of()
            for of in (standard_artifacts.Model, standard_artifacts.ModelBlessing, standard_artifacts.InfraBlessing)
        )
        model.uri, model.id, blessing.uri = str(folder.parent), 7, str(tmp_path / "blessing")
        quality.set_int_custom_property("blessed", blessed)
        Executor().Do(
            {"model": [model], "model_blessing": [quality]},
            {"blessing": [blessing]},
            {"limits": json.dumps(dataclasses.asdict(ServingLimits(**limits)))},
        )
        return blessing, json.loads((tmp_path / "blessing" / "verdict.json").read_text())

    return validate


def no_process_is_left():
    children = [child for child in psutil.Process().children() if not has_ended(child)]
    return not [child for child in children if processes.__name__ in " ".join(child.cmdline())]


def test_pusher_accepts_the_blessing_of_a_valid_model(tmp_path, model, validate):
    blessing, verdict = validate(model, repetitions=5)
    assert model_utils.is_infra_validated(blessing) and blessing.get_int_custom_property("current_model_id") == 7
    assert (tmp_path / "blessing" / "INFRA_BLESSED").read_text() == ""
    assert verdict["blessed"] and verdict["problems"] == [] and verdict["answers"] == 10
    assert set(verdict["latency_ms"]) == {"serving_default", "share"}
    # TensorFlow alone takes more.
    assert verdict["memory_mb"] > 100 and verdict["load_seconds"] > 0
    assert no_process_is_left()


class Answering(contextlib.nullcontext):
    """Stands for a served model, with its answers by signature and its memory."""

    load_seconds = 1.0

    def __init__(self, responses, megabytes):
        super().__init__(self)
        self.responses, self.megabytes, self.asked = responses, megabytes, 0

    def predict(self, request, seconds):
        self.asked += 1
        return self.responses[request.model_spec.signature_name]

    def memory_mb(self):
        return self.megabytes


def test_a_model_that_does_not_answer_as_trained_is_refused_with_the_reason(tmp_path, exported, validate, monkeypatch):
    """One answer differs from the trainer's, and the model takes more memory than it may."""
    answers = {log.request.model_spec.signature_name: log.response for log in check.read_recorded(str(exported))}
    answers["serving_default"].outputs["share"].CopyFrom(tf.make_tensor_proto([1 / 3, 2.3334]))
    monkeypatch.setattr(check, "ServedModel", lambda directory, seconds: Answering(answers, 600.0))
    blessing, verdict = validate(exported, repetitions=1, max_memory_mb=1)
    assert not model_utils.is_infra_validated(blessing)
    different, memory = verdict["problems"]
    assert different.startswith(
        "serving_default: share differs by 2.9e-05 from the trainer's (threshold: serving.max_difference=1e-05"
    )
    assert memory == "memory: 600 MiB (threshold: serving.max_memory_mb=1)"
    assert (tmp_path / "blessing" / "INFRA_NOT_BLESSED").read_text().splitlines() == verdict["problems"]
    assert blessing.get_string_custom_property("reason") == "; ".join(verdict["problems"])


class InThisProcess:
    """Stands for the process of `bert-tfx serve`: the same server, in this process."""

    running = 0

    def __init__(self, command, **_):
        options = dict(itertools.pairwise(command))
        ports = {"grpc_port": int(options["--grpc-port"]), "rest_port": int(options["--rest-port"])}
        self.server = Server(options["--model-dir"], **ports)
        self.server.start()
        InThisProcess.running += 1

    def poll(self):
        """No exit code: it runs."""

    def kill(self):
        self.server.stop()

    def wait(self):
        InThisProcess.running -= 1


def test_a_model_that_does_not_load_is_refused_with_the_servers_reason(model, validate, monkeypatch):
    monkeypatch.setattr(served_model.subprocess, "Popen", InThisProcess)
    with (model / "variables/variables.index").open("r+b") as file:
        file.truncate(10)
    blessing, verdict = validate(model)
    assert not model_utils.is_infra_validated(blessing)
    (problem,) = verdict["problems"]
    assert problem.startswith("the server cannot load it: ") and "\n" not in problem
    assert not InThisProcess.running


@pytest.fixture
def no_server(monkeypatch):
    monkeypatch.setattr(served_model.subprocess, "Popen", lambda *_, **__: pytest.fail("a server was started"))


def test_a_signature_without_recorded_requests_is_refused(no_server, model, validate):
    (model / WARMUP).unlink()
    _, verdict = validate(model)
    assert verdict["problems"] == [f"no requests are recorded for serving_default, share in {WARMUP}"]


def test_models_refused_by_the_quality_gate_are_not_served(no_server, model, validate):
    blessing, verdict = validate(model, blessed=0)
    assert not model_utils.is_infra_validated(blessing)
    assert (verdict["blessed"], verdict["checked"], verdict["problems"]) == (False, False, [])


def test_a_server_that_does_not_start_is_an_error_without_verdict(tmp_path, monkeypatch, model, validate):
    """The failure is not cached: a re-run tries again."""
    monkeypatch.setattr(processes, "__name__", "no.such.module")
    with pytest.raises(StageError, match=r"bert-tfx serve ended before it could load the model \(exit code 1\)"):
        validate(model)
    assert not (tmp_path / "blessing").exists()


def test_a_server_ends_with_its_parent(tmp_path):
    """Even after kill -9. The folder is empty: the server waits, without loading TensorFlow."""
    words = ["serve", "--model-dir", str(tmp_path), "--grpc-port", "0", "--rest-port", "0"]
    code = f"""
import subprocess, time
from components.processes import bound_command
server = subprocess.Popen(bound_command(*{words}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
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
    end = time.monotonic() + 120
    while not has_ended(server):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_its_ports_are_free(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(served_model, "_PORTS", range(port, port + 4))
        assert port not in served_model._free_ports()
    assert port in served_model._free_ports()


def test_a_crash_during_a_request_is_reported(exported, monkeypatch):
    """With a process that ends, and an unconnected channel, in place of a server."""
    monkeypatch.setattr(served_model, "_SECONDS_TO_DIE", 120.0)
    served = served_model.ServedModel(str(exported), 1.0)
    served._process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    with grpc.insecure_channel("127.0.0.1:9") as channel:
        served._prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = predict_pb2.PredictRequest()
        request.model_spec.signature_name = "share"
        with pytest.raises(NotServable, match=r"^no answer from share: the server crashed \(signal 9\)$"):
            served.predict(request, 5.0)


SCORES, TOKENS = np.array([[0.5, 20.0]], np.float32), np.array([b"a"], object)


def answer(**outputs):
    response = predict_pb2.PredictResponse()
    for name, value in outputs.items():
        response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
    return response


OWN = answer(scores=SCORES, tokens=TOKENS)


def signature():
    """scores float[?, 2], tokens string[?]"""
    found = meta_graph_pb2.SignatureDef()
    for name, dtype, shape in (("scores", tf.float32, [None, 2]), ("tokens", tf.string, [None])):
        info = found.outputs[name]
        info.dtype = dtype.as_datatype_enum
        info.tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
    return found


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        ({}, None),
        # Relative to 1e-5 for a number above 1, absolute below.
        ({"scores": SCORES + np.array([[9e-6, 1.9e-4]], np.float32)}, None),
        (
            {"scores": SCORES + np.array([[2e-5, 0]], np.float32)},
            "scores differs by 2e-05 from the trainer's (threshold:",
        ),
        ({"scores": SCORES + np.array([[0, 4e-4]], np.float32)}, "scores differs by 2e-05 from the trainer's"),
        ({"scores": np.array([[np.nan, 20.0]], np.float32)}, "scores contains numbers that are not finite"),
        ({"scores": SCORES.astype(np.float64)}, "scores is float64, the signature says float32"),
        ({"scores": SCORES[:, :1]}, "scores has the shape [1, 1], the signature says [-1, 2]"),
        ({"scores": np.repeat(SCORES, 2, axis=0)}, "scores has the shape [2, 2], the trainer's [1, 2]"),
        ({"tokens": np.array([b"b"], object)}, "tokens differs from the trainer's in 1 of 1 values"),
        ({"more": SCORES}, "returns more, scores, tokens instead of scores, tokens"),
    ],
)
def test_an_answer_is_compared_with_the_trainers_and_the_signature(outputs, problem):
    found = differences(answer(**{"scores": SCORES, "tokens": TOKENS} | outputs), OWN, signature(), 1e-5)
    assert len(found) == (problem is not None)
    assert problem is None or found[0].startswith(problem)


def test_answers_differ_if_the_trainers_is_nan():
    own = answer(scores=np.array([[np.nan, 20.0]], np.float32), tokens=TOKENS)
    (found,) = differences(OWN, own, signature(), 1e-5)
    assert found.startswith("scores differs by nan from the trainer's")


def ask(response, megabytes=100.0, times=None, monkeypatch=None, **limits):
    log = prediction_log_pb2.PredictLog(response=OWN)
    log.request.model_spec.signature_name = "encode"
    if times:
        # Successive latencies in milliseconds.
        clock = iter([second for ms in times for second in (0.0, ms / 1000)])
        monkeypatch.setattr(check.time, "perf_counter", lambda: next(clock))
    served = Answering({"encode": response}, megabytes)
    return served, check._ask(served, [log], {"encode": signature()}, ServingLimits(**limits))


def test_a_valid_model_is_blessed_with_its_figures(monkeypatch):
    served, verdict = ask(OWN, times=range(1, 21), monkeypatch=monkeypatch, repetitions=20)
    assert verdict.blessed and verdict.problems == [] and served.asked == verdict.answers == 20
    # 19 of 20 answers within 19 ms.
    assert verdict.latency_ms == {"encode": pytest.approx(19.0)} and verdict.memory_mb == 100.0


def test_every_violated_limit_is_reported_with_its_setting(monkeypatch):
    _, verdict = ask(
        OWN, 513.0, times=[8.0], monkeypatch=monkeypatch, repetitions=1, max_latency_ms=7, max_memory_mb=512
    )
    assert not verdict.blessed
    assert verdict.problems == [
        "encode: 95th percentile of the latency 8 ms (threshold: serving.max_latency_ms=7)",
        "memory: 513 MiB (threshold: serving.max_memory_mb=512)",
    ]


def test_a_repeated_wrong_answer_is_reported_once():
    _, verdict = ask(answer(scores=SCORES, tokens=np.array([b"b"], object)), repetitions=5)
    assert verdict.problems == ["encode: tokens differs from the trainer's in 1 of 1 values"] and not verdict.blessed
