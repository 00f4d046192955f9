"""Requests to a SavedModel that share calls get the same answers as alone."""

import functools
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.errors import ServingError
from serving.models.servable import GraphServable as Servable
from serving.scheduling.admission import RequestContext
from serving.scheduling.batching_parameters import BatchingSettings
from serving.scheduling.row_load import can_share
from serving.scheduling.scheduler import Scheduler
from tests.support.models.rounding import assert_equal_but_for_rounding

# Longer than a test takes: a call starts only when it is full.
FOREVER = 600_000_000


@pytest.fixture(scope="module")
def servable(toy: Callable[[int], Path]) -> Callable[..., Servable]:
    """The toy with calls of so many rows; each is loaded once."""
    return functools.cache(lambda most=32: Servable("bert", 1, toy(1), BatchingSettings(max_batch_size=most)))


def texts(*rows: str) -> dict[str, np.ndarray]:
    return {"text": np.array([row.encode() for row in rows], object)}


def together(model: Servable, most: int, requests: list[tuple[str, Any]]) -> list[Any]:
    """Answers of concurrent requests, in calls of `most` rows."""
    scheduler = Scheduler(BatchingSettings(max_batch_size=most, batch_timeout_micros=FOREVER))
    barrier = threading.Barrier(len(requests))

    def call(request: tuple[str, Any]) -> Any:
        barrier.wait(120)
        return scheduler.run(model.prepare(*request), RequestContext(120))

    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(call, requests))
    scheduler.close()
    return answers


def test_which_signatures_share(servable: Callable[..., Servable]) -> None:
    signatures = servable().signature_defs
    assert {name for name, signature in signatures.items() if can_share(name, signature)} == {
        *("serving_default", "fill_mask", "length", "encode", "encode_pair", "next_sentence", "echo"),
        *("sequence", "company", "embed"),
    }
    # Not `numbers`, which has an output without rows, nor `spin`, which has an input without rows.
    assert not can_share("evaluate", signatures["length"])
    # As wide as the call, without an output that shows where a row ends.
    unmarked = type(signatures["sequence"]).FromString(signatures["sequence"].SerializeToString())
    del unmarked.outputs["tokens"]
    assert not can_share("sequence", unmarked)


def test_shared_answers_equal_single_answers(servable: Callable[..., Servable]) -> None:
    """Calls of two requests of random rows: every signature, including shapes and padding."""
    draw = random.Random(7)

    def text() -> str:
        return " ".join(draw.choice(["a", "bc", "[MASK]", "word", "ü"]) for _ in range(draw.randint(1, 3))) + " [MASK]"

    for name in ("fill_mask", "sequence", "encode", "next_sentence", "echo", "length"):
        requests = []
        for rows in [2] * 6:
            inputs = texts(*(text() for _ in range(rows)))
            if name in ("encode", "next_sentence"):
                inputs["text_pair"] = texts(*(text() for _ in range(rows)))["text"]
            requests.append((name, inputs))
        for request, answer in zip(requests, together(servable(4), 4, requests), strict=True):
            expected = servable().predict(*request)
            assert set(answer) == set(expected)
            for key, array in expected.items():
                assert answer[key].shape == array.shape, (request, key)
                if array.dtype == object:
                    assert answer[key].tolist() == array.tolist()
                else:
                    assert_equal_but_for_rounding(answer[key], array, depth=1)  # one division


def test_divided_requests_have_the_same_answer(servable: Callable[..., Servable]) -> None:
    """Including shapes and padding, except vectors of padding, which nothing depends on."""
    draw = random.Random(3)
    given = [" ".join(["[MASK]"] * draw.randint(1, 3) + ["word"] * draw.randint(0, 5)) for _ in range(20)]
    given[4] = " ".join(["[MASK]"] * 9)
    whole = Servable.compute
    for name in ("fill_mask", "sequence", "echo", "length"):
        answer, expected = servable(3).predict(name, texts(*given)), whole(servable(), name, texts(*given))
        assert set(answer) == set(expected)
        for key, array in expected.items():
            assert (answer[key].shape, answer[key].dtype) == (array.shape, array.dtype)
            if key == "sequence_output":
                is_word = expected["tokens"] != b"[PAD]"
                assert np.array_equal(answer[key][is_word], array[is_word])
                continue
            assert answer[key].tolist() == array.tolist(), (name, key)


def test_errors_name_the_row_of_the_request(servable: Callable[..., Servable]) -> None:
    given = ["a" * (40 - row) + " [MASK]" for row in range(40)]
    given[17] = "a" * 30
    for most in (4, 32):
        with pytest.raises(ServingError, match=r"^no \[MASK\] in text 17$"):
            servable(most).predict("fill_mask", texts(*given))


def test_inputs_with_unequal_or_no_rows_are_computed_whole(servable: Callable[..., Servable]) -> None:
    model = servable(4)
    assert model.predict("length", texts())["length"].shape == (0,)
    # The default pair is one row for any number of texts.
    assert model.predict("encode", texts("a", "bc"))["pooled_output"][:, 0].tolist() == [1, 2]
    assert not model.prepare("encode", texts("a", "bc")).shares and model.prepare("encode", texts("a")).shares
