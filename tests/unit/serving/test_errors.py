"""One-line messages from TensorFlow's errors."""

import doctest

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


@pytest.mark.parametrize(
    "how, message",
    [
        ("equal", "one is not two"),
        ("several", "too long: 7 8"),
        ("op", "StringToNumberOp could not correctly convert string: x"),
    ],
)
def test_errors_of_a_graph(how: str, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        failing(how)
    reason = errors.from_exception(raised.value)
    assert (reason.code, str(reason), reason.http_status) == (grpc.StatusCode.INVALID_ARGUMENT, message, 400)


def test_errors_of_a_session() -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        text = v1.placeholder(tf.string, [None])
        number = tf.strings.to_number(text)
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            session.run(number, {text: ["x"]})
    assert "Node: " in str(raised.value)
    assert str(errors.from_exception(raised.value)) == "StringToNumberOp could not correctly convert string: x"


def test_messages_are_shortened_and_escaped() -> None:
    """Unpaired surrogates cannot be sent; gRPC sends three bytes for each non-ASCII one, of at most 8 KiB."""
    assert str(errors.invalid("no input \ud800")) == "no input \\ud800"
    assert 600 < len(str(errors.invalid("漢" * 5000))) * 3 <= 2000


def test_errors_outside_a_graph() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        tf.strings.to_number("x")
    assert str(errors.from_exception(raised.value)) == "StringToNumberOp could not correctly convert string: x"
    unforeseen = errors.from_exception(ValueError())
    assert (unforeseen.code, str(unforeseen), unforeseen.http_status) == (
        grpc.StatusCode.INTERNAL,
        "ValueError",
        500,
    )
    assert len(str(errors.invalid("x" * 10_000))) == errors.MAX_MESSAGE_CHARS
