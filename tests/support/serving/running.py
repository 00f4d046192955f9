"""Servers of tests, and waits for what they do."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from serving.server import Server


@contextlib.contextmanager
def running(base: Path | None = None, **options: Any) -> Iterator[Server]:
    """A server on free ports that has loaded its models."""
    with Server(base, grpc_port=0, rest_port=0, **options) as server:
        assert server.wait_until_available(120)
        yield server


def wait_for(done: Callable[[], object], seconds: float = 120.0) -> None:
    """Return once `done`; an error after `seconds`."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
