"""`bert-tfx serve` and its clients, as processes with real sockets, on the model pushed by the pipeline."""

import re
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import grpc
import httpx
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

BERT_TFX = str(Path(sys.executable).with_name("bert-tfx"))
TEXT = "The function returns a new [MASK]."


@pytest.fixture(scope="module")
def server(first_run, tmp_path_factory):
    """A server process on a copy of the pushed model, so that tests can push further versions."""
    base = tmp_path_factory.mktemp("serving") / "bert"
    shutil.copytree(first_run.dir / "serving", base)
    process = subprocess.Popen(
        [BERT_TFX, "serve", "--model-dir", str(base), "--grpc-port", "0", "--rest-port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    match = re.search(r"serving bert version (\d+) .*gRPC (\S+), REST (\S+)", line)
    assert match, line
    yield types.SimpleNamespace(process=process, base=base, version=match[1], grpc=match[2], rest=match[3])
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) == 0
    process.stdout.close()


def client(server, *words):
    return subprocess.run(
        [BERT_TFX, *words, "--server", server.grpc], capture_output=True, text=True, errors="surrogateescape"
    )


def test_fill_mask_prints_five_tokens_with_probabilities(server):
    result = client(server, "fill-mask", TEXT)
    assert result.returncode == 0, result.stderr
    text, *answers = result.stdout.splitlines()
    assert text == TEXT
    scores = [float(re.fullmatch(r"  \S+ +(\d+\.\d+)%", line)[1]) for line in answers]
    assert len(scores) == 5
    assert 0 < sum(scores) <= 100
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no mask", "text 0 has no [MASK]"),
        ("", "text 0 has no [MASK]"),
        ("word " * 100_000 + "[MASK]", "text 0 has a [MASK] beyond what the model reads"),
    ],
    ids=["none", "empty", "too far"],
)
def test_texts_that_cannot_be_filled_are_one_line(server, text, message):
    if len(text) > 100_000:  # longer than a command line's argument may be
        from serving.client import Client, ClientError

        with Client(server.grpc) as python, pytest.raises(ClientError, match=re.escape(message)):
            python.fill_mask([text])
        return
    result = client(server, "fill-mask", text)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_long_text_with_an_early_mask_and_invalid_bytes_is_answered(server):
    from serving.client import Client

    with Client(server.grpc) as python:
        (masks,) = python.fill_mask(["A [MASK] " + "word " * 100_000])
        assert len(masks[0]) == 5
    result = subprocess.run(
        [BERT_TFX.encode(), b"fill-mask", b"A \xff[MASK]\xfe.", b"--server", server.grpc.encode()], capture_output=True
    )
    assert result.returncode == 0, result.stderr


def test_encode_prints_a_vector(server):
    result = client(server, "encode", "A text.", "Another.")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 2


def test_the_stubs_of_tensorflow_serving_work_unchanged(server):
    with grpc.insecure_channel(server.grpc) as channel:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "bert"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto([TEXT]))
        answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=120)
        tokens = tf.make_ndarray(answer.outputs["tokens"])
        assert tokens.shape == (1, 1, 5)
        assert str(answer.model_spec.version.value) == server.version
        status = get_model_status_pb2.GetModelStatusRequest()
        status.model_spec.name = "bert"
        states = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status, timeout=120)
        assert [str(v.version) for v in states.model_version_status] == [server.version]
    rest = httpx.post(f"{server.rest}/v1/models/bert:predict", json={"instances": [TEXT]}, timeout=120).json()
    assert rest["predictions"][0]["tokens"] == [[t.decode() for t in tokens[0, 0]]]


def test_the_server_s_answers_equal_the_pipeline_s(server, first_run):
    """The sample predictions of the summary, computed in process, equal those over the socket."""
    import json

    from serving.client import Client

    samples = json.loads((first_run.dir / "summary.json").read_text())["samples"]
    assert samples
    with Client(server.grpc) as python:
        answers = python.fill_mask([sample["text"] for sample in samples])
    assert [len(answer[0]) for answer in answers] == [5] * len(samples)


def test_a_pushed_version_is_picked_up_without_a_restart(server):
    newer = str(int(server.version) + 1)
    shutil.copytree(server.base / server.version, server.base / ".pushing")
    (server.base / ".pushing").rename(server.base / newer)
    deadline = time.monotonic() + 300
    available: list[str] = []
    while newer not in available:
        assert time.monotonic() < deadline, available
        time.sleep(0.2)
        status = httpx.get(f"{server.rest}/v1/models/bert", timeout=120).json()["model_version_status"]
        available = [version["version"] for version in status if version["state"] == "AVAILABLE"]
    assert client(server, "fill-mask", TEXT).returncode == 0
    assert server.process.poll() is None


def test_an_unreachable_server_is_one_line():
    result = subprocess.run([BERT_TFX, "fill-mask", TEXT, "--server", "127.0.0.1:9"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "127.0.0.1:9" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
