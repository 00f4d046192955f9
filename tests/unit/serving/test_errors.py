"""One-line messages from TensorFlow's errors."""

import doctest
from collections.abc import Callable

import grpc
import pytest
import tensorflow as tf

from serving import errors


def test_documented_example() -> None:
    assert doctest.testmod(errors).attempted == 2 and doctest.testmod(errors).failed == 0


@tf.function
def failing(how: str) -> tf.Tensor:
    if how == "equal":
        tf.debugging.assert_equal(tf.constant(1) + 0, 2, message="one is not two")
    if how == "several":
        tf.debugging.Assert(tf.constant(1) > 2, ["too long:", tf.constant([7, 8])])
    return tf.strings.to_number("x" if how == "op" else "1")


def in_session() -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        text = v1.placeholder(tf.string, [None])
        session.run(tf.strings.to_number(text), {text: ["x"]})


NO_NUMBER = "StringToNumberOp could not correctly convert string: x"


@pytest.mark.parametrize(
    "fail, message",
    [
        (lambda: failing("equal"), "one is not two"),
        (lambda: failing("several"), "too long: 7 8"),
        (lambda: failing("op"), NO_NUMBER),
        (in_session, NO_NUMBER),
        (lambda: tf.strings.to_number("x"), NO_NUMBER),
    ],
)
def test_errors_of_graphs_sessions_and_operations(fail: Callable[[], object], message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        fail()
    reason = errors.from_exception(raised.value)
    assert (reason.code, str(reason), reason.http_status) == (grpc.StatusCode.INVALID_ARGUMENT, message, 400)


def test_an_unforeseen_error_is_internal() -> None:
    reason = errors.from_exception(ValueError())
    assert (reason.code, str(reason), reason.http_status) == (grpc.StatusCode.INTERNAL, "ValueError", 500)


def test_messages_are_shortened_and_escaped() -> None:
    """Unpaired surrogates cannot be sent; gRPC sends three bytes for each non-ASCII one, of at most 8 KiB."""
    assert str(errors.invalid("no input \ud800")) == "no input \\ud800"
    assert 600 < len(str(errors.invalid("漢" * 5000))) * 3 <= 2000
    assert len(str(errors.invalid("x" * 10_000))) == errors.MAX_MESSAGE_CHARS
