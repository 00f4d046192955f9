"""Servers of tests, requests to them, and waits for what they do."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.models.manager import ModelManager
from serving.server import Server

Waits = Callable[[], None]


@contextlib.contextmanager
def running(base: Path | None = None, **options: Any) -> Iterator[Server]:
    """A server on free ports that has loaded its models."""
    with Server(base, grpc_port=0, rest_port=0, **options) as server:
        assert server.wait_until_available(120)
        yield server


def predict_request(signature: str, name: str = "bert", **inputs: Any) -> Any:
    """A PredictRequest, made without the server's own code."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest(model_spec={"name": name, "signature_name": signature})
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return request


def wait_for(done: Callable[[], object], seconds: float = 120.0) -> None:
    """Return once `done`; an error after `seconds`."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def replace(file: Path, text: str) -> None:
    """Replace a file in one step, so that no poll reads half of it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


def counted_polls(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """A function that returns after six further polls of a models.config, however long these take."""
    polled: list[Path] = []
    content = ModelManager._content
    monkeypatch.setattr(ModelManager, "_content", lambda self, file: (polled.append(file), content(self, file))[1])

    def wait() -> None:
        first = len(polled)
        wait_for(lambda: len(polled) >= first + 7)  # one may be under way

    return wait
