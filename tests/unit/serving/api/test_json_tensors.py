"""JSON of outputs, compared with that of Python's lists."""

import json
from typing import Any

import numpy as np
import pytest

from serving.api import json_tensors

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[0.2, 1e-38]] * 2, np.float32), [[0.2, 1e-38]] * 2),
        (np.array([[0.1], [1e300]]), [[0.1], [1e300]]),
        (np.array([[0.2, NAN], [-INFINITY, 0.1]], np.float32), [[0.2, NAN], [-INFINITY, 0.1]]),
        (np.array([NAN, 0.2], np.float32), [NAN, 0.2]),
        ((np.arange(6, dtype=np.int64).reshape(2, 3) + 2**60)[:, ::2], [[2**60, 2**60 + 2], [2**60 + 3, 2**60 + 5]]),
        (np.array([True, False]), [True, False]),
        (np.zeros([2, 0], np.float32), [[], []]),
        (np.array([[b"a", b"\xff"], ["é".encode(), b""]], object), [["a", {"b64": "/w=="}], ["é", ""]]),
    ],
)
def test_an_answer_in_rows_and_columns(array: np.ndarray, expected: list[Any]) -> None:
    other = np.array([7, 8], np.int32)
    for outputs, columns, rows in (
        ({"x": array}, expected, expected),
        (
            {"x": array, "n": other},
            {"x": expected, "n": [7, 8]},
            [{"x": x, "n": n} for x, n in zip(expected, [7, 8], strict=True)],
        ),
    ):
        # As text, because NaN is not equal to itself.
        assert repr(json.loads(json_tensors.answer({"inputs": 0}, outputs))) == repr({"outputs": columns})
        assert repr(json.loads(json_tensors.answer({"instances": 0}, outputs))) == repr({"predictions": rows})


@pytest.mark.parametrize("value", [0.2, NAN])
def test_a_scalar(value: float) -> None:
    answer = json_tensors.answer({"inputs": 0}, {"x": np.array(value, np.float32)})
    assert repr(json.loads(answer)) == repr({"outputs": value})


def test_an_answer_is_as_large_as_is_said() -> None:
    array = -(np.random.default_rng(1).random(10_000, np.float32) * np.float32(1e-37))
    assert 3 * array.nbytes < len(json_tensors.answer({"inputs": 0}, {"x": array})) < json_tensors.GROWTH * array.nbytes
