"""Server that imports TFX once, and forks a process for each command of `pipeline.fork_server.client`.

The server forks from a single thread: imported modules must not start threads that hold locks. NumPy's BLAS and
jemalloc start some, and handle forks; TensorFlow, gRPC and Beam start theirs at first use.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from components.processes import end_with_parent
from pipeline.fork_server.client import LENGTH_BYTES, STATUS_BYTES, code_of_this_project

IDLE_SECONDS = 600.0
REQUEST_SECONDS = 10.0
SECONDS_BETWEEN_LOOKS = 2.0
PRELOADED = (
    "pipeline.cli",
    "pipeline.runners.run_steps",
    "pipeline.dags.pretrain",
    "pipeline.dags.finetune",
    "pipeline.workflows.report",
    "components.trainer.pretrain",
    "components.trainer.finetune",
)


@dataclasses.dataclass
class _Command:
    """A forked process and its client."""

    pid: int
    client: socket.socket


class WarmServer:
    """Forks a process for each request, and watches the processes and their clients.

    Args:
        listener: a listening Unix socket; the server removes its file at its end.
        idle_seconds: the server ends if no command ran for this time, or none runs and the file was removed.
    """

    def __init__(self, listener: socket.socket, idle_seconds: float):
        self._listener, self._idle_seconds = listener, idle_seconds
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._running: set[int] = set()

    def serve(self) -> dict[str, Any] | None:
        """Serve requests; in a forked process return its request, in the server None at its end."""
        path, idle_since, gone = self._listener.getsockname(), time.monotonic(), False
        while True:
            events = self._selector.select(0 if gone and not self._running else SECONDS_BETWEEN_LOOKS)
            if events or self._running:
                idle_since = time.monotonic()
            elif gone:
                return None
            elif time.monotonic() - idle_since >= self._idle_seconds or not os.path.exists(path):
                # No client can connect after this; those that just did are still served.
                Path(path).unlink(missing_ok=True)
                gone = True
            for key, _ in events:
                if key.fileobj is self._listener:
                    if request := self._accept():
                        return request
                elif not isinstance(key.fileobj, socket.socket):
                    self._ended(key)
                elif key.data.pid in self._running:
                    self._signal(key.data)

    def _accept(self) -> dict[str, Any] | None:
        """Read a request and fork; return the request in the new process, None in the server."""
        client, _ = self._listener.accept()
        client.settimeout(REQUEST_SECONDS)
        try:
            head, streams, _, _ = socket.recv_fds(client, LENGTH_BYTES, 3)
            request = json.loads(_read(client, int.from_bytes(head, "big")))
        except (OSError, ValueError):  # the client left before its request was complete
            client.close()
            return None
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(client, server, streams)
            return request
        for stream in streams:
            os.close(stream)
        command = _Command(pid, client)
        self._running.add(pid)
        self._selector.register(client, selectors.EVENT_READ, command)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, command)
        return None

    def _become(self, client: socket.socket, server: int, streams: list[int]) -> None:
        """Set up the new process: close the server's sockets, use the client's streams."""
        end_with_parent(server)
        os.setsid()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close() if isinstance(key.fileobj, socket.socket) else os.close(key.fd)
        self._selector.close()
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)

    def _signal(self, command: _Command) -> None:
        """Forward signals; if the client is gone, kill its command."""
        try:
            numbers = command.client.recv(16)
        except OSError:
            numbers = b""
        for number in numbers:
            os.kill(command.pid, number)
        if not numbers:
            self._selector.unregister(command.client)
            try:
                os.killpg(command.pid, signal.SIGKILL)
            except ProcessLookupError:  # the new process has no group yet
                os.kill(command.pid, signal.SIGKILL)

    def _ended(self, key: selectors.SelectorKey) -> None:
        """Send the client its command's exit status."""
        command = key.data
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        _, status = os.waitpid(command.pid, 0)
        self._running.discard(command.pid)
        with command.client as client:
            if client in self._selector.get_map():
                self._selector.unregister(client)
            with contextlib.suppress(OSError):  # the client did not wait
                client.sendall(status.to_bytes(STATUS_BYTES, "big"))


def _read(client: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        part = client.recv(size - len(read))
        if not part:
            raise ConnectionError
        read += part
    return read


def main(listener: int, command_line: Callable[[], None]) -> None:
    """Serve; a forked process continues as the requested command."""
    code = code_of_this_project()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    for module in PRELOADED:
        importlib.import_module(module)
    # Frozen: garbage collection in the forks would copy the pages of all imports (seconds, above all at their exit).
    gc.collect()
    gc.freeze()
    if code_of_this_project() != code:
        sys.exit("the sources changed during their import")
    with socket.socket(fileno=listener) as sock:
        request = WarmServer(sock, IDLE_SECONDS).serve()
    if request is None:
        return
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = ["bert-tfx", *request["words"]]
    sys.modules["__main__"].__package__ = None  # otherwise usage messages name `python -m`
    command_line()
