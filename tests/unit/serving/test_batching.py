"""Requests that are computed together get what each would get alone."""

import gc
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from serving.batching import BatchingSettings, can_batch
from serving.errors import ServingError
from serving.servable import Servable

# Longer than a test takes: a batch starts only once it is full.
FOREVER = 60_000_000


def servable(toy: Callable[[int], Path], **settings: Any) -> Servable:
    return Servable("bert", 1, toy(1), BatchingSettings(**settings) if settings else None)


def texts(*rows: str) -> dict[str, np.ndarray]:
    return {"text": np.array([row.encode() for row in rows], object)}


def together(calls: list[Callable[[], Any]]) -> list[Any]:
    """What they return, or raise, all called at once."""
    barrier = threading.Barrier(len(calls))

    def call(one: Callable[[], Any]) -> Any:
        barrier.wait(30)
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
        *("sequence", "company"),
    }
    # Not `numbers`, one of whose outputs has no rows, nor `spin`, whose input has none.
    assert not can_batch("evaluate", signatures["length"])
    # As wide as the batch, and nothing tells where a row ends.
    unmarked = type(signatures["sequence"]).FromString(signatures["sequence"].SerializeToString())
    del unmarked.outputs["tokens"]
    assert not can_batch("sequence", unmarked)


def test_answers_are_those_of_the_request_alone(toy: Callable[[int], Path]) -> None:
    """Batches of four rows, of whatever comes together: every signature, shapes included, to 1e-5."""
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
        assert batched.prepare(*request).batched and set(answer) == set(expected)
        for name, array in expected.items():
            assert answer[name].shape == array.shape, (request, name)
            if array.dtype == object:
                assert answer[name].tolist() == array.tolist()
            else:
                np.testing.assert_allclose(answer[name], array, atol=1e-5)


def test_rows_that_wait_together_are_one_batch_of_their_bucket(toy: Callable[[int], Path]) -> None:
    model = servable(toy, max_batch_size=4, batch_timeout_micros=FOREVER, length_buckets=(8,))
    short, long = "a" * 8, "b" * 9
    answers = together([lambda one=one: model.predict("company", texts(one)) for one in [short, long] * 4])
    for index, answer in enumerate(answers):
        assert (answer["rows"].tolist(), answer["longest"].tolist()) == ([4], [[8], [9]][index % 2])


def test_one_bad_text_fails_its_own_request_alone(toy: Callable[[int], Path]) -> None:
    model = servable(toy, max_batch_size=3, batch_timeout_micros=FOREVER, length_buckets=())
    asked = [("fill_mask", texts(text)) for text in ("a [MASK]", "none", "[MASK] [MASK]")]
    good, bad, two = together([lambda one=one: model.predict(*one) for one in asked])
    assert good["tokens"].tolist() == [[[b"0a", b"0b"]]] and two["tokens"].shape == (1, 2, 2)
    assert isinstance(bad, ServingError) and str(bad) == "no [MASK] in text 0"
    assert bad.code is grpc.StatusCode.INVALID_ARGUMENT


def test_large_requests_are_split_or_computed_alone(toy: Callable[[int], Path]) -> None:
    model = servable(toy, max_batch_size=4)
    ten = texts(*(chr(97 + index) * (index + 1) for index in range(10)))
    answer = model.predict("company", ten)
    assert set(answer["rows"].tolist()) <= {1, 2, 3, 4} and len(answer["rows"]) == 10
    assert model.predict("length", ten)["length"].tolist() == list(range(1, 11))
    assert not model.prepare("sequence", ten).batched and not model.prepare("length", texts(*"a" * 33)).batched
    whole = servable(toy, max_batch_size=4, enable_large_batch_splitting=False)
    assert not whole.prepare("company", ten).batched
    assert whole.predict("company", ten)["rows"].tolist() == [10] * 10


def test_batches_are_padded_to_allowed_sizes(toy: Callable[[int], Path]) -> None:
    model = servable(toy, max_batch_size=8, allowed_batch_sizes=(2, 8))
    assert [model.predict("company", texts(*"a" * rows))["rows"].tolist() for rows in (1, 2, 3)] == [
        [2],
        [2] * 2,
        [8] * 3,
    ]


def test_a_full_queue_is_resource_exhausted(toy: Callable[[int], Path]) -> None:
    """One row waits for a second one, in the only batch there may be: two more do not fit."""
    model = servable(toy, max_batch_size=2, batch_timeout_micros=FOREVER, max_enqueued_batches=1)
    model.predict("company", texts("a", "b"))  # the executable is built
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(model.predict, "company", texts("a"))
        refused = None
        while refused is None:
            if waiting.done():  # the two came first, and it was turned away
                waiting = pool.submit(model.predict, "company", texts("a"))
            try:
                # If they come first they are a full batch.
                model.predict("company", texts("b", "c"))
            except ServingError as error:
                refused = error
        model.predict("company", texts("d"))
        assert waiting.result(30)["rows"].tolist() == [2]
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED and "queue" in str(refused)


def test_inputs_of_different_rows_and_no_rows_are_computed_alone(toy: Callable[[int], Path]) -> None:
    model = servable(toy, max_batch_size=4)
    none = model.prepare("length", texts())
    assert not none.batched and none.run()["length"].shape == (0,)
    # The default pair is one row for any number of texts.
    two = model.prepare("encode", texts("a", "bc"))
    assert not two.batched and two.run()["pooled_output"][:, 0].tolist() == [1, 2]
    assert model.prepare("encode", texts("a")).batched


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_batch_threads_go_with_their_model(toy: Callable[[int], Path]) -> None:
    def threads() -> set[str]:
        return set(os.listdir("/proc/self/task"))

    servable(toy, num_batch_threads=1).predict("length", texts("a"))  # TensorFlow's own threads are there now
    gc.collect()
    before = threads()
    model = servable(toy, num_batch_threads=5)
    model.predict("length", texts("a"))
    its_own = threads() - before
    assert len(its_own) >= 5
    del model
    gc.collect()
    # TensorFlow may have added one for all models.
    assert len(its_own & threads()) <= len(its_own) - 5


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"max_batch_size": 0}, "max_batch_size is 0"),
        ({"allowed_batch_sizes": (2, 8)}, "not with max_batch_size"),
        ({"length_buckets": (64, 32)}, "must increase"),
    ],
)
def test_settings_refuse_what_the_op_would(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BatchingSettings(**settings)
