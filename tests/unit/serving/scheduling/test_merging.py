"""Requests that wait for an engine share a call, and get the answers that they would get alone."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from serving.models.engine_servable import EngineServable
from serving.scheduling.batching import BatchingSettings
from serving.scheduling.request_parts import Part

TEXT = {"text": (object, (-1,))}
TOKENS = {"tokens": (object, (-1, -1)), "counts": (np.int64, (-1,))}


class Engine:
    """Splits texts at spaces. The text "wait" holds the only thread until `go`; "bad" is an error."""

    inputs, outputs = TEXT, TOKENS

    def __init__(self):
        self.calls, self.started, self.go = [], threading.Event(), threading.Event()

    def answer(self, text):
        self.calls.append(list(text))
        if b"wait" in text:
            self.started.set()
            assert self.go.wait(30)
        if b"bad" in text:
            raise ValueError(f"text {list(text).index(b'bad')} is bad")
        words = [one.split() for one in text]
        width = max(map(len, words))
        tokens = np.array([[*of, *[b"[PAD]"] * (width - len(of))] for of in words], object)
        return {"tokens": tokens, "counts": np.array([len(of) for of in words])}


def ask(servable, *texts, shared=True):
    return servable.compute("serving_default", Part({"text": np.array(texts, object)}, None, shared))


class Incomplete(Engine):
    """Leaves an output out, so that a shared call cannot be cut into its requests."""

    def answer(self, text):
        return {"counts": super().answer(text)["counts"]}


def answers(tmp_path, *requests, merges=True, engine=None):
    """Outputs or errors of requests that all wait for the same call, and the engine's calls after it."""
    engine = engine or Engine()
    settings = BatchingSettings(num_batch_threads=1)
    servable = EngineServable("bert", 1, tmp_path, {"serving_default": engine}, settings, merges)
    with ThreadPoolExecutor(32) as clients:
        try:
            clients.submit(ask, servable, b"wait")
            assert engine.started.wait(30)
            asked = []
            for texts, shared in requests:  # in this order
                asked.append(clients.submit(ask, servable, *texts, shared=shared))
                deadline = time.monotonic() + 30
                while len(servable._merger._waiting) < len(asked):
                    assert time.monotonic() < deadline
                    time.sleep(0.001)
        finally:
            engine.go.set()
    return [one.exception() or one.result() for one in asked], engine.calls[1:]


def test_requests_of_about_the_same_length_share_a_call(tmp_path):
    long = b"a text of many words"
    found, calls = answers(tmp_path, ([b"a b c"], True), ([long], True), ([b"a b", b"abcde"], True), ([b"abcd"], True))
    assert calls == [[b"a b c", b"a b", b"abcde", b"abcd"], [long]]
    assert [of["counts"].tolist() for of in found] == [[3], [5], [2, 1], [1]]
    assert found[0]["tokens"].tolist() == [[b"a", b"b", b"c"]]
    # As wide as the request's own rows need.
    assert found[2]["tokens"].tolist() == [[b"a", b"b"], [b"abcde", b"[PAD]"]]
    assert found[3]["tokens"].tolist() == [[b"abcd"]]


def test_an_error_fails_its_own_request_only(tmp_path):
    found, calls = answers(tmp_path, ([b"one"], True), ([b"two", b"bad"], True), ([b"six"], True))
    assert calls == [[b"one", b"two", b"bad", b"six"], [b"one"], [b"two", b"bad"], [b"six"]]
    assert [found[0]["counts"].tolist(), found[2]["counts"].tolist()] == [[1], [1]]
    assert str(found[1]) == "text 1 is bad"


def test_requests_of_a_call_that_cannot_be_cut_are_answered_alone(tmp_path):
    found, calls = answers(tmp_path, ([b"one"], True), ([b"two"], True), engine=Incomplete())
    assert calls == [[b"one", b"two"], [b"one"], [b"two"]]
    assert [of["counts"].tolist() for of in found] == [[1], [1]]


def test_a_call_has_at_most_eight_rows_and_later_requests_do_not_wait_for_earlier_ones(tmp_path):
    found, calls = answers(tmp_path, ([b"abc"] * 7, True), ([b"abd"] * 2, True), ([b"abe"], True))
    assert calls == [[*[b"abc"] * 7, b"abe"], [b"abd"] * 2]
    assert [len(of["counts"]) for of in found] == [7, 2, 1]


@pytest.mark.parametrize(("shared", "merges"), [(False, True), (True, False)], ids=["a large part", "int8"])
def test_what_is_computed_alone(tmp_path, shared, merges):
    _, calls = answers(tmp_path, ([b"one"], shared), ([b"two"], True), merges=merges)
    assert calls == [[b"one"], [b"two"]]
