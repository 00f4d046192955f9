"""Comparison and measurement of a served model's answers, without a server."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from components.serving_validator import component as check
from components.serving_validator.component import differences
from components.serving_validator.limits import ServingLimits

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


class Answering:
    """Stub of a served model, with its answers and memory."""

    load_seconds = 1.0

    def __init__(self, response, megabytes):
        self.response, self.megabytes, self.asked = response, megabytes, 0

    def predict(self, request, seconds):
        self.asked += 1
        return self.response

    def memory_mb(self):
        return self.megabytes


def ask(response, megabytes=100.0, times=None, monkeypatch=None, **limits):
    log = prediction_log_pb2.PredictLog(response=OWN)
    log.request.model_spec.signature_name = "encode"
    if times:
        # Successive latencies in milliseconds.
        clock = iter([second for ms in times for second in (0.0, ms / 1000)])
        monkeypatch.setattr(check.time, "perf_counter", lambda: next(clock))
    served = Answering(response, megabytes)
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
