"""Admission, memory and the waits of a request."""

import threading

import grpc
import pytest

from serving.errors import ServingError
from serving.scheduling.admission import Admission, QueueSettings, RequestContext


def code_of(call, *arguments) -> str:
    with pytest.raises(ServingError) as raised:
        call(*arguments)
    return f"{raised.value.code.name} {raised.value.http_status}"


def test_admission_is_limited_and_can_be_closed() -> None:
    admission = Admission(2, 0)
    first, second = RequestContext(), RequestContext()
    admission.admit(first)
    admission.admit(second)
    assert code_of(admission.admit, RequestContext()) == "RESOURCE_EXHAUSTED 429"
    second.held.close()
    admission.admit(third := RequestContext())
    third.held.close()
    assert admission.inside == 1 and not admission.close(0.01)
    first.held.close()
    assert admission.close(0.01)
    assert code_of(admission.admit, RequestContext()) == "UNAVAILABLE 503"


def test_memory_is_reserved_until_the_end_of_the_request() -> None:
    admission = Admission(9, 10)
    one, other = RequestContext(), RequestContext()
    admission.reserve(one, 4)
    admission.reserve(other, 6)
    with pytest.raises(ServingError, match="may take 1 bytes; others leave 0") as raised:
        admission.reserve(RequestContext(), 1)
    assert (raised.value.code, raised.value.http_status) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 429)
    # Clients repeat what got a 429.
    with pytest.raises(ServingError, match="may take 11 bytes; at most 10: send fewer or shorter rows") as raised:
        admission.reserve(RequestContext(), 11)
    assert (raised.value.code, raised.value.http_status) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 413)
    one.held.close()
    other.held.close()
    admission.reserve(RequestContext(), 10)


def test_a_wait_ends_with_its_condition_or_with_the_request() -> None:
    context, done = RequestContext(60), []
    threading.Timer(0.02, lambda: (context.wake(), done.append(1), context.wake())).start()
    context.wait_until(lambda: bool(done))
    threading.Timer(0.02, context.cancel).start()
    assert code_of(context.wait_until, lambda: False) == "CANCELLED 500"
    assert code_of(RequestContext(0.02).wait_until, lambda: False) == "DEADLINE_EXCEEDED 504"


def test_invalid_queue_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="max_requests is 0"):
        QueueSettings(max_requests=0)
