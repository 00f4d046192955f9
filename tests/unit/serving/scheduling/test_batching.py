"""Batched requests get the same answers as alone."""

import gc
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from serving.errors import ServingError
from serving.models.servable import GraphServable as Servable
from serving.scheduling.batching import BatchingSettings, can_batch
from tests.support.models.rounding import assert_equal_but_for_rounding

# Longer than a test takes: a batch starts only when it is full.
FOREVER = 600_000_000


def servable(toy: Callable[[int], Path], **settings: Any) -> Servable:
    return Servable("bert", 1, toy(1), BatchingSettings(**settings) if settings else None)


def texts(*rows: str) -> dict[str, np.ndarray]:
    return {"text": np.array([row.encode() for row in rows], object)}


def is_batched(model: Servable, name: str, inputs: dict[str, np.ndarray]) -> bool:
    return all(model.batches(name, part) for part in model.prepare(name, inputs).parts)


def together(calls: list[Callable[[], Any]]) -> list[Any]:
    """Results or exceptions of concurrent calls."""
    barrier = threading.Barrier(len(calls))

    def call(one: Callable[[], Any]) -> Any:
        barrier.wait(120)
        try:
            return one()
        except ServingError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call, calls))


def test_which_signatures_are_batched(toy: Callable[[int], Path]) -> None:
    signatures = servable(toy).signature_defs
    batched = {name for name, signature in signatures.items() if can_batch(name, signature)}
    assert batched == {
        *("serving_default", "fill_mask", "length", "encode", "encode_pair", "next_sentence", "echo"),
        *("sequence", "company", "embed"),
    }
    # Not `numbers`, which has an output without rows, nor `spin`, which has an input without rows.
    assert not can_batch("evaluate", signatures["length"])
    # As wide as the batch, without an output that shows where a row ends.
    unmarked = type(signatures["sequence"]).FromString(signatures["sequence"].SerializeToString())
    del unmarked.outputs["tokens"]
    assert not can_batch("sequence", unmarked)


def test_batched_answers_equal_single_answers(toy: Callable[[int], Path]) -> None:
    """Batches of four random rows: every signature, including shapes."""
    alone = servable(toy)
    batched = servable(toy, max_batch_size=4, batch_timeout_micros=50_000, length_buckets=())
    draw = random.Random(7)

    def text() -> str:
        return " ".join(draw.choice(["a", "bc", "[MASK]", "word", "ü"]) for _ in range(draw.randint(1, 9))) + " [MASK]"

    requests = []
    for _ in range(60):
        name = draw.choice(["fill_mask", "sequence", "encode", "next_sentence", "echo", "length"])
        rows = draw.randint(1, 3)
        inputs = texts(*(text() for _ in range(rows)))
        if name in ("encode", "next_sentence"):
            inputs["text_pair"] = texts(*(text() for _ in range(rows)))["text"]
        requests.append((name, inputs))
    answers = []
    for start in range(0, len(requests), 20):
        part = requests[start : start + 20]
        answers += together([lambda one=one: batched.predict(*one) for one in part])
    for request, answer in zip(requests, answers, strict=True):
        expected = alone.predict(*request)
        assert is_batched(batched, *request) and set(answer) == set(expected)
        for name, array in expected.items():
            assert answer[name].shape == array.shape, (request, name)
            if array.dtype == object:
                assert answer[name].tolist() == array.tolist()
            else:
                assert_equal_but_for_rounding(answer[name], array, depth=1)  # one division


def test_waiting_rows_form_one_batch_per_bucket(toy: Callable[[int], Path]) -> None:
    model = servable(toy, max_batch_size=4, batch_timeout_micros=FOREVER, length_buckets=(8,))
    short, long = "a" * 8, "b" * 9
    answers = together([lambda one=one: model.predict("company", texts(one)) for one in [short, long] * 4])
    for index, answer in enumerate(answers):
        assert (answer["rows"].tolist(), answer["longest"].tolist()) == ([4], [[8], [9]][index % 2])


def test_an_invalid_text_fails_only_its_own_request(toy: Callable[[int], Path]) -> None:
    model = servable(toy, max_batch_size=3, batch_timeout_micros=FOREVER, length_buckets=())
    asked = [("fill_mask", texts(text)) for text in ("a [MASK]", "none", "[MASK] [MASK]")]
    good, bad, two = together([lambda one=one: model.predict(*one) for one in asked])
    assert good["tokens"].tolist() == [[[b"0a", b"0b"]]] and two["tokens"].shape == (1, 2, 2)
    assert isinstance(bad, ServingError) and str(bad) == "no [MASK] in text 0"
    assert bad.code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("settings", [{"max_batch_size": 4}, {"max_batch_size": 4, "length_buckets": ()}])
def test_large_requests_are_split_by_length(toy: Callable[[int], Path], settings: dict[str, Any]) -> None:
    model = servable(toy, **settings)
    ten = texts(*("a" * (10 - index) for index in range(10)))
    answer = model.predict("company", ten)
    assert answer["rows"].tolist() == [2, 2, 4, 4, 4, 4, 4, 4, 4, 4]
    assert answer["longest"].tolist() == [10, 10, 8, 8, 8, 8, 4, 4, 4, 4]
    assert is_batched(model, "company", ten) and is_batched(model, "sequence", ten)


@pytest.mark.parametrize("batched", [True, False])
def test_split_requests_have_the_same_answer(toy: Callable[[int], Path], batched: bool) -> None:
    """Including shapes and padding, except vectors of padding, which nothing depends on."""
    parts = servable(toy, max_batch_size=3) if batched else Servable("bert", 1, toy(1), None)
    parts._most_rows = 3
    whole = servable(toy)
    draw = random.Random(3)
    given = [" ".join(["[MASK]"] * draw.randint(1, 3) + ["word"] * draw.randint(0, 5)) for _ in range(20)]
    given[4] = " ".join(["[MASK]"] * 9)
    inputs = texts(*given)
    for name in ("fill_mask", "sequence", "echo", "length"):
        assert len(parts.prepare(name, inputs).parts) >= 7
        answer, expected = parts.predict(name, inputs), whole.predict(name, inputs)
        assert len(whole.prepare(name, inputs).parts) == 1 and set(answer) == set(expected)
        for key, array in expected.items():
            assert (answer[key].shape, answer[key].dtype) == (array.shape, array.dtype)
            if key == "sequence_output":
                is_word = expected["tokens"] != b"[PAD]"
                assert np.array_equal(answer[key][is_word], array[is_word])
                continue
            assert answer[key].tolist() == array.tolist(), (name, key)


def test_errors_name_the_row_of_the_request(toy: Callable[[int], Path]) -> None:
    given = ["a" * (40 - row) + " [MASK]" for row in range(40)]
    given[17] = "a" * 30
    for model in (servable(toy, max_batch_size=4), servable(toy)):
        with pytest.raises(ServingError, match=r"^no \[MASK\] in text 17$"):
            model.predict("fill_mask", texts(*given))


def test_batches_are_padded_to_allowed_sizes(toy: Callable[[int], Path]) -> None:
    model = servable(toy, max_batch_size=8, allowed_batch_sizes=(2, 8))
    assert [model.predict("company", texts(*"a" * rows))["rows"].tolist() for rows in (1, 2, 3)] == [
        [2],
        [2] * 2,
        [8] * 3,
    ]


def test_a_full_queue_is_resource_exhausted(toy: Callable[[int], Path]) -> None:
    """One row waits for a second in the only batch: two more do not fit."""
    model = servable(toy, max_batch_size=2, batch_timeout_micros=FOREVER, max_enqueued_batches=1)
    model.predict("company", texts("a", "b"))  # builds the executable
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(model.predict, "company", texts("a"))
        refused = None
        while refused is None:
            if waiting.done():  # the two came first, and it was refused
                waiting = pool.submit(model.predict, "company", texts("a"))
            try:
                # If they come first, they fill a batch.
                model.predict("company", texts("b", "c"))
            except ServingError as error:
                refused = error
        model.predict("company", texts("d"))
        assert waiting.result(120)["rows"].tolist() == [2]
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED and "queue" in str(refused)


def test_inputs_with_unequal_or_no_rows_are_not_batched(toy: Callable[[int], Path]) -> None:
    model = servable(toy, max_batch_size=4)
    none = model.prepare("length", texts())
    assert not is_batched(model, "length", texts()) and none.run()["length"].shape == (0,)
    # The default pair is one row for any number of texts.
    two = model.prepare("encode", texts("a", "bc"))
    assert not is_batched(model, "encode", texts("a", "bc")) and two.run()["pooled_output"][:, 0].tolist() == [1, 2]
    assert is_batched(model, "encode", texts("a"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_batch_threads_end_with_their_model(toy: Callable[[int], Path]) -> None:
    def threads() -> set[str]:
        return set(os.listdir("/proc/self/task"))

    servable(toy, num_batch_threads=1).predict("length", texts("a"))  # starts TensorFlow's own threads
    gc.collect()
    before = threads()
    model = servable(toy, num_batch_threads=5)
    model.predict("length", texts("a"))
    its_own = threads() - before
    assert len(its_own) >= 5
    del model
    gc.collect()
    deadline = time.monotonic() + 120
    # TensorFlow may have added one for all models; a thread is listed for a moment after its end.
    while len(its_own & threads()) > len(its_own) - 5:
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"max_batch_size": 0}, "max_batch_size is 0"),
        ({"allowed_batch_sizes": (2, 8)}, "not with max_batch_size"),
        ({"length_buckets": (64, 32)}, "must increase"),
    ],
)
def test_invalid_batching_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchingSettings(**settings)
