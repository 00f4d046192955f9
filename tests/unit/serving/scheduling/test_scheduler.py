"""Requests that wait for an engine share calls, get the answers that they would get alone, and leave when they end."""

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from serving.errors import ServingError
from serving.models.engine_servable import EngineServable
from serving.scheduling.admission import RequestContext
from serving.scheduling.batching_parameters import BatchingSettings
from serving.scheduling.jobs import Call
from serving.scheduling.scheduler import Scheduler
from tests.support.serving.running import wait_for

PATIENCE = 60.0


class Engine:
    """Splits texts at spaces. The text "wait" holds the thread until `go`; "bad" is an error."""

    def __init__(self) -> None:
        self.inputs = {"text": (object, (-1,))}
        self.outputs = {"tokens": (object, (-1, -1)), "counts": (np.int64, (-1,))}
        self.calls: list[list[bytes]] = []
        self.started, self.go = threading.Event(), threading.Event()
        self.on_call: Callable[[], None] = lambda: None

    def answer(self, text: np.ndarray) -> dict[str, np.ndarray]:
        self.calls.append(text.tolist())
        self.on_call()
        if b"wait" in text:
            self.started.set()
            assert self.go.wait(PATIENCE)
        if b"bad" in text:
            raise ValueError(f"text {text.tolist().index(b'bad')} is bad")
        words = [row.split() for row in text]
        width = max(map(len, words))
        tokens = np.array([[*row, *[b"[PAD]"] * (width - len(row))] for row in words], object)
        return {"tokens": tokens, "counts": np.array([len(row) for row in words])}


class Tagger(Engine):
    """Its words are the text's own, and their padding is ""."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs = {"words": (object, (-1, -1)), "counts": (np.int64, (-1,))}

    def answer(self, text: np.ndarray) -> dict[str, np.ndarray]:
        outputs = super().answer(text)
        words, counts = outputs.pop("tokens"), outputs["counts"]
        words[np.arange(words.shape[1]) >= counts[:, None]] = b""
        return {**outputs, "words": words}


class Incomplete(Engine):
    """Leaves a row out, so that a shared call cannot be cut into its requests."""

    def answer(self, text: np.ndarray) -> dict[str, np.ndarray]:
        return {name: array[: max(len(array) - 1, 1)] for name, array in super().answer(text).items()}


class Busy:
    """A scheduler whose threads compute "wait" until the end of the block; requests queue in order."""

    def __init__(self, engine: Engine | None = None, shares: bool = True, threads: int = 1, **settings: Any):
        self.engine = engine or Engine()
        batching = BatchingSettings(num_batch_threads=threads, **settings)
        self.scheduler = Scheduler(batching if shares else None)
        self.scheduler._settings = batching
        self.servable = EngineServable(
            "bert", 1, Path(), {"serving_default": self.engine, "other": self.engine}, batching
        )
        self._clients = ThreadPoolExecutor(32)

    def __enter__(self) -> "Busy":
        context = RequestContext()
        self.first, self.cancel_first = self._clients.submit(self._run, [b"wait", b"w"], context), context.cancel
        assert self.engine.started.wait(PATIENCE)
        return self

    def ask(self, *texts: bytes, context: RequestContext | None = None, signature: str = "") -> Future[Any]:
        waiting = self.scheduler.waiting
        asked = self._clients.submit(self._run, texts, context or RequestContext(), signature)
        wait_for(lambda: self.scheduler.waiting > waiting or asked.done())
        return asked

    def _run(self, texts: Sequence[bytes], context: RequestContext, signature: str = "") -> dict[str, np.ndarray]:
        inputs = {"text": np.array(texts, object)}
        return self.scheduler.run(self.servable.prepare(signature, inputs, ["counts", "tokens"]), context)

    @property
    def calls(self) -> list[list[bytes]]:
        return self.engine.calls[1:]

    def __exit__(self, *exc: object) -> None:
        self.engine.go.set()
        self._clients.shutdown()
        self.scheduler.close()


def counts(asked: Future[Any]) -> list[int]:
    return asked.result(PATIENCE)["counts"].tolist()


def test_requests_of_about_the_same_length_share_a_call() -> None:
    long = b"a text of many more words than the others have"
    with Busy() as busy:
        asked = [busy.ask(*texts) for texts in ([b"a b c"], [long], [b"abcde", b"a b"], [b"abcd"])]
    assert busy.calls == [[b"a b c", b"abcde", b"a b", b"abcd"], [long]]
    assert list(map(counts, asked)) == [[3], [10], [1, 2], [1]]
    # As wide as the request's own rows need, in their order.
    tokens = [one.result()["tokens"].tolist() for one in asked]
    assert [tokens[0], tokens[2], tokens[3]] == [
        [[b"a", b"b", b"c"]],
        [[b"abcde", b"[PAD]"], [b"a", b"b"]],
        [[b"abcd"]],
    ]


@pytest.mark.parametrize("alone", [True, False])
def test_a_word_that_looks_like_padding_is_answered(alone: bool) -> None:
    servable = EngineServable("bert", 1, Path(), {"serving_default": Tagger()}, BatchingSettings())
    jobs = [servable.prepare("", {"text": np.array([text], object)}) for text in (b"see [PAD]", b"a b <pad>", b"a")]
    for job in jobs:
        (call := Call(job.budget)).take(job)
        for other in jobs if not alone else ():
            call.take(other)
        call.compute()
    words = [job.result()["words"].tolist() for job in jobs]
    assert words == [[[b"see", b"[PAD]"]], [[b"a", b"b", b"<pad>"]], [[b"a"]]]


def test_threads_divide_what_waits_among_them() -> None:
    with Busy(threads=2) as busy:
        busy.engine.started.clear()
        busy.ask(b"wait")
        assert busy.engine.started.wait(PATIENCE)
        asked = [busy.ask(b"a") for _ in range(6)]
    assert sorted(map(len, busy.calls[1:])) in ([1, 2, 3], [1, 1, 1, 3], [1, 1, 2, 2])  # half of the rest, and so on
    assert list(map(counts, asked)) == [[1]] * 6


@pytest.mark.parametrize(
    "texts, settings, thread",
    [([b"one"], {}, "client"), ([b"one", b"two"], {}, "engine"), ([b"one"], {"batch_timeout_micros": 1}, "engine")],
)
def test_a_lone_row_is_computed_in_the_thread_of_its_request(texts, settings, thread) -> None:
    engine, batching = Engine(), BatchingSettings(num_batch_threads=1, **settings)
    names: list[str] = []
    engine.on_call = lambda: names.append(threading.current_thread().name)
    servable = EngineServable("bert", 1, Path(), {"serving_default": engine}, batching)
    scheduler = Scheduler(batching)
    with ThreadPoolExecutor(1, thread_name_prefix="client") as clients:
        for _ in range(2):
            job = servable.prepare("", {"text": np.array(texts, object)}, ["counts"])
            clients.submit(scheduler.run, job, RequestContext()).result(PATIENCE)
    scheduler.close()
    assert [name.partition("_")[0] for name in names] == [thread] * 2


def test_what_comes_while_a_request_computes_is_computed_after_it() -> None:
    engine, batching = Engine(), BatchingSettings(num_batch_threads=1)
    servable = EngineServable("bert", 1, Path(), {"serving_default": engine}, batching)
    scheduler = Scheduler(batching)

    def run(text: bytes) -> Any:
        return scheduler.run(servable.prepare("", {"text": np.array([text], object)}, ["counts"]), RequestContext())

    with ThreadPoolExecutor(2) as clients, contextlib.closing(scheduler):
        first = clients.submit(run, b"wait")
        assert engine.started.wait(PATIENCE)
        second = clients.submit(run, b"two")
        wait_for(lambda: scheduler.waiting == 1)
        engine.go.set()
        assert counts(first) == counts(second) == [1]


def test_an_error_fails_its_own_request_only() -> None:
    with Busy() as busy:
        asked = [busy.ask(*texts) for texts in ([b"one"], [b"seven", b"bad"], [b"six"])]
    assert busy.calls == [[b"one", b"seven", b"bad", b"six"], [b"one"], [b"seven", b"bad"], [b"six"]]
    assert counts(asked[0]) == counts(asked[2]) == [1]
    error = asked[1].exception()
    assert isinstance(error, ServingError) and str(error) == "text 1 is bad"  # the request's row, not the call's
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT


def test_requests_of_a_call_that_cannot_be_cut_are_answered_alone() -> None:
    with Busy(Incomplete()) as busy:
        asked = [busy.ask(b"one"), busy.ask(b"two"), busy.ask(*[b"a" * 60] * 9)]
    assert busy.calls[:3] == [[b"one", b"two"], [b"one"], [b"two"]]
    assert list(map(counts, asked[:2])) == [[1], [1]]
    assert "answered another number of rows than 8" in str(asked[2].exception())


def test_a_call_has_at_most_eight_rows_and_requests_of_fewer_are_not_divided() -> None:
    with Busy() as busy:
        asked = [busy.ask(*texts) for texts in ([b"abc"] * 7, [b"abd"] * 2, [b"abe"])]
    assert busy.calls == [[b"abc"] * 7, [b"abd", b"abd", b"abe"]]
    assert list(map(counts, asked)) == [[1] * 7, [1] * 2, [1]]


def test_large_requests_take_turns_with_others() -> None:
    with Busy() as busy:
        asked = [busy.ask(*[b"a" * (40 + length) for length in range(20)]), busy.ask(*[b"b"] * 20)]
    assert [(call[0][:1], len(call)) for call in busy.calls] == [(b"a", 8), (b"b", 8)] * 2 + [(b"a", 4), (b"b", 4)]
    assert list(map(counts, asked)) == [[1] * 20] * 2


def test_without_batching_requests_share_no_call() -> None:
    with Busy(shares=False) as busy:
        asked = [busy.ask(b"one"), busy.ask(b"two", b"three")]
    assert busy.calls == [[b"one"], [b"two", b"three"]]
    assert list(map(counts, asked)) == [[1], [1, 1]]


def test_calls_are_padded_to_allowed_sizes() -> None:
    with Busy(max_batch_size=8, allowed_batch_sizes=(1, 2, 8)) as busy:
        asked = busy.ask(b"a", b"b c", b"d")
    assert busy.calls == [[b"a", b"b c", *[b"d"] * 6]] and counts(asked) == [1, 2, 1]


@pytest.mark.parametrize(
    "spec, pad",
    [
        ({"algorithm": "sentencepiece"}, b"<pad>"),  # ALBERT's, whose texts begin with [CLS]
        ({"algorithm": "byte_bpe", "format": {"pad": "<p>"}}, b"<p>"),
        ({"algorithm": "wordpiece"}, b"[PAD]"),
    ],
)
def test_tokens_of_a_divided_request_are_padded_with_the_token_of_the_vocabulary(
    tmp_path: Path, spec: dict[str, Any], pad: bytes
) -> None:
    (tmp_path / "vocab_spec.json").write_text(json.dumps(spec))
    servable = EngineServable("bert", 1, tmp_path, {"serving_default": Engine()}, BatchingSettings())
    answer = servable.predict("", {"text": np.array([b"[CLS]", *[b"[CLS] a"] * 8], object)})
    assert answer["tokens"].tolist() == [[b"[CLS]", b"[PAD]"], *[[b"[CLS]", b"a"]] * 8]  # the engine's, of one call
    answer = servable.predict("", {"text": np.array([b"[CLS]"] * 8 + [b"[CLS] a"], object)})
    assert answer["tokens"].tolist() == [*[[b"[CLS]", pad]] * 8, [b"[CLS]", b"a"]]


def test_rows_of_a_request_that_ended_after_a_call_took_them_are_not_computed() -> None:
    """A call may wait for more rows (`batch_timeout_micros`)."""
    engine = Engine()
    servable = EngineServable("bert", 1, Path(), {"serving_default": engine}, BatchingSettings())
    ended, other = (servable.prepare("", {"text": np.array([text], object)}) for text in (b"one", b"two"))
    call = Call(ended.budget)
    call.take(ended)
    call.take(other)
    ended.context.cancel()
    call.compute()
    assert engine.calls == [[b"two"]] and other.result()["counts"].tolist() == [1]


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "CANCELLED"])
def test_ended_requests_leave_the_queue_at_once_and_are_not_computed(code: str) -> None:
    context = RequestContext(0.3 if code == "DEADLINE_EXCEEDED" else None)
    with Busy() as busy:
        ended, last = busy.ask(b"one", context=context), busy.ask(b"two")
        if code == "CANCELLED":
            context.cancel()
        error = ended.exception(PATIENCE)
        assert isinstance(error, ServingError) and error.code.name == code
        assert busy.scheduler.waiting == 1 and not busy.first.done()
    assert busy.calls == [[b"two"]] and counts(last) == [1]


def test_a_request_that_is_being_computed_ends_at_once_and_the_rest_of_it_is_not_computed() -> None:
    with Busy() as busy:
        large = busy.ask(*[b"a"] * 8, *[b"b" * 50] * 8, context=(context := RequestContext()))
        busy.cancel_first()
        assert isinstance(busy.first.exception(PATIENCE), ServingError) and not busy.engine.go.is_set()
        busy.engine.on_call = context.cancel
    assert isinstance(large.exception(PATIENCE), ServingError)
    assert busy.calls == [[b"a"] * 8]


def test_an_expired_request_is_not_computed() -> None:
    with Busy() as busy:
        for seconds in (0, -1):
            error = busy.ask(b"one", context=RequestContext(seconds)).exception(PATIENCE)
            assert "deadline" in str(error)
        late = busy.ask(b"two", context=RequestContext(1e12))
    assert busy.calls == [[b"two"]] and counts(late) == [1]


def test_a_closed_scheduler_refuses_requests_that_are_computed_or_wait_and_new_ones() -> None:
    with Busy() as busy:
        waiting = busy.ask(b"one")
        busy.scheduler.close()
        for asked in (busy.first, waiting, busy.ask(b"two")):
            error = asked.exception(PATIENCE)
            assert isinstance(error, ServingError) and error.code is grpc.StatusCode.UNAVAILABLE
        assert busy.scheduler.waiting == 0
    assert busy.calls == []


def test_requests_beyond_max_enqueued_batches_are_refused() -> None:
    with Busy(max_batch_size=2, max_enqueued_batches=2) as busy:
        asked = [busy.ask(b"one", b"two"), busy.ask(b"three"), busy.ask(b"four", b"five"), busy.ask(b"six")]
        error = asked.pop().exception(PATIENCE)
        assert isinstance(error, ServingError) and error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(error) == "5 rows are in the queue of serving_default, and it takes 4: ask again later"
        asked.append(busy.ask(b"of another signature", signature="other"))
    assert list(map(counts, asked)) == [[1, 1], [1], [1, 1], [3]]


def test_an_incomplete_call_waits_for_rows_for_the_timeout() -> None:
    """A minute for the first two, which fill their call; an instant for the third, which is alone."""
    engine = Engine()
    settings = BatchingSettings(num_batch_threads=2, max_batch_size=2, batch_timeout_micros=int(PATIENCE * 1e6))
    scheduler = Scheduler(settings)
    servable = EngineServable("bert", 1, Path(), {"serving_default": engine}, settings)

    def run(text: bytes) -> dict[str, np.ndarray]:
        return scheduler.run(servable.prepare("", {"text": np.array([text], object)}), RequestContext(PATIENCE))

    with ThreadPoolExecutor(2) as pool:
        assert [answer["counts"].tolist() for answer in pool.map(run, [b"one", b"two two"])] == [[1], [2]]
    assert sorted(map(len, engine.calls)) == [2]
    scheduler._settings = BatchingSettings(num_batch_threads=2, max_batch_size=2, batch_timeout_micros=1000)
    assert run(b"three")["counts"].tolist() == [1]
    scheduler.close()


def test_threads_end_with_their_scheduler() -> None:
    with Busy() as busy:
        (thread,) = busy.scheduler._pool._threads
        assert thread.is_alive()
    wait_for(lambda: not thread.is_alive())
    assert counts(busy.first) == [1, 1]
