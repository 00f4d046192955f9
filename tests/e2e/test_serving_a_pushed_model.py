"""`bert-tfx serve` as a process, and its clients over real sockets, on the model pushed by the pipeline."""

import json
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

from serving.client import Client, ClientError
from tests.support.pipeline.command_line import bert_tfx

BERT_TFX = str(Path(sys.executable).with_name("bert-tfx"))
TEXT = "The function returns a new [MASK]."


@pytest.fixture(scope="module")
def server(first_run, tmp_path_factory):
    """A server process on a copy of the pushed model, so that tests can push further versions."""
    base = tmp_path_factory.mktemp("serving") / "bert"
    shutil.copytree(first_run.dir / "serving", base)
    command = [BERT_TFX, "serve", "--model-dir", base, "--grpc-port", "0", "--rest-port", "0"]
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    match = re.search(r"serving bert version (\d+) .*gRPC (\S+), REST (\S+)", line)
    assert match, line
    with Client(match[2]) as client:
        yield types.SimpleNamespace(
            process=process, base=base, version=match[1], grpc=match[2], rest=match[3], client=client
        )
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) == 0
    process.stdout.close()


def test_commands_print_five_tokens_with_probabilities_and_vectors(server):
    code, out, err = bert_tfx("fill-mask", TEXT, "--server", server.grpc)
    assert code == 0, err
    text, *answers = out.splitlines()
    assert text == TEXT
    scores = [float(re.fullmatch(r"  \S+ +(\d+\.\d+)%", line)[1]) for line in answers]
    assert len(scores) == 5 and 0 < sum(scores) <= 100
    assert scores == sorted(scores, reverse=True)
    code, out, err = bert_tfx("encode", "A text.", "Another.", "--server", server.grpc)
    assert code == 0 and len(out.splitlines()) == 2, err
    # Python decodes the words of a command line before `main` has them.
    words = [BERT_TFX.encode(), b"fill-mask", b"A \xff[MASK]\xfe.", b"--server", server.grpc.encode()]
    done = subprocess.run(words, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", ["no mask", ""])
def test_texts_that_cannot_be_filled_are_one_line(server, text):
    code, _, err = bert_tfx("fill-mask", text, "--server", server.grpc)
    assert code == 2 and "text 0 has no [MASK]" in err and len(err.strip().splitlines()) == 1


def test_a_long_text_with_an_early_mask_is_answered_and_with_a_late_one_refused(server):
    (masks,) = server.client.fill_mask(["A [MASK] " + "word " * 100_000])
    assert len(masks[0]) == 5
    with pytest.raises(ClientError, match=re.escape("text 0 has a [MASK] beyond what the model reads")):
        server.client.fill_mask(["word " * 100_000 + "[MASK]"])


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


def test_the_server_answers_the_samples_of_the_summary(server, first_run):
    samples = json.loads((first_run.dir / "summary.json").read_text())["samples"]
    assert samples
    for sample, (answers,) in zip(samples, server.client.fill_mask([s["text"] for s in samples]), strict=True):
        scores = [probability for _, probability in sample["predictions"]]
        assert [score for _, score in answers] == pytest.approx(scores, abs=1e-5)


def test_a_pushed_version_is_picked_up_without_a_restart(server):
    newer = str(int(server.version) + 1)
    shutil.copytree(server.base / server.version, server.base / ".pushing")
    (server.base / ".pushing").rename(server.base / newer)
    deadline = time.monotonic() + 300
    while newer not in {str(v.version) for v in server.client.status() if v.state == "AVAILABLE"}:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert server.client.fill_mask([TEXT]) and server.process.poll() is None
