"""Imports TFX once, and forks a process for each command that `pipeline.warm_client` asks for.

A process is forked from one thread: nothing that is imported here may start threads of its own that hold locks.
NumPy's BLAS and jemalloc start some, and know of forks; TensorFlow, gRPC and Beam start theirs when first used.
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
from pathlib import Path
from typing import Any

from pipeline.die_with_parent import die_with_parent
from pipeline.warm_client import LENGTH_BYTES, STATUS_BYTES, code_of_this_project

IDLE_SECONDS = 600.0
REQUEST_SECONDS = 10.0
SECONDS_BETWEEN_LOOKS = 2.0
PRELOADED = (
    "pipeline.cli",
    "pipeline.orchestrated",
    "pipeline.pretrain_dag",
    "pipeline.finetune_dag",
    "pipeline.report.page",
    "bert_keras.pretrain",
    "bert_keras.finetune",
)


@dataclasses.dataclass
class _Command:
    """A forked process, and who waits for it."""

    pid: int
    client: socket.socket


class WarmServer:
    """Forks a process for each request; watches both its end and its client's.

    Args:
        listener: a listening Unix socket; its file goes when the server ends.
        idle_seconds: it ends when nothing has run for so long, or when nothing runs and its file was removed.
    """

    def __init__(self, listener: socket.socket, idle_seconds: float):
        self._listener, self._idle_seconds = listener, idle_seconds
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._running: set[int] = set()

    def serve(self) -> dict[str, Any] | None:
        """Returns a request, in the process that was forked for it, or None when the server is to end."""
        path, idle_since, gone = self._listener.getsockname(), time.monotonic(), False
        while True:
            events = self._selector.select(0 if gone and not self._running else SECONDS_BETWEEN_LOOKS)
            if events or self._running:
                idle_since = time.monotonic()
            elif gone:
                return None
            elif time.monotonic() - idle_since >= self._idle_seconds or not os.path.exists(path):
                # Nobody comes after this; who came just before it is served.
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
        """Reads a request and forks; returns it in the new process alone."""
        client, _ = self._listener.accept()
        client.settimeout(REQUEST_SECONDS)
        try:
            head, streams, _, _ = socket.recv_fds(client, LENGTH_BYTES, 3)
            request = json.loads(_read(client, int.from_bytes(head, "big")))
        except (OSError, ValueError):  # it went before it had asked
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
        """In the new process: nothing of the server's is left open, the streams are the client's."""
        die_with_parent(server)
        os.setsid()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close() if isinstance(key.fileobj, socket.socket) else os.close(key.fd)
        self._selector.close()
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)

    def _signal(self, command: _Command) -> None:
        """Passes signals on; a client that is gone takes its command with it."""
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
            except ProcessLookupError:  # it is so new that it has no group yet
                os.kill(command.pid, signal.SIGKILL)

    def _ended(self, key: selectors.SelectorKey) -> None:
        """Tells a client how its command ended."""
        command = key.data
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        _, status = os.waitpid(command.pid, 0)
        self._running.discard(command.pid)
        with command.client as client:
            if client in self._selector.get_map():
                self._selector.unregister(client)
            with contextlib.suppress(OSError):  # it did not wait
                client.sendall(status.to_bytes(STATUS_BYTES, "big"))


def _read(client: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        part = client.recv(size - len(read))
        if not part:
            raise ConnectionError
        read += part
    return read


def main(listener: int) -> None:
    """Serves; a forked process goes on as the command that was asked for."""
    code = code_of_this_project()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    for module in PRELOADED:
        importlib.import_module(module)
    # What is imported stays: forked processes need not look through it, above all not when they end (seconds).
    gc.collect()
    gc.freeze()
    if code_of_this_project() != code:
        sys.exit("the sources changed while they were imported")
    with socket.socket(fileno=listener) as sock:
        request = WarmServer(sock, IDLE_SECONDS).serve()
    if request is None:
        return
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = ["bert-tfx", *request["words"]]
    sys.modules["__main__"].__package__ = None  # else usage is told as of `python -m pipeline.warm_server`
    from pipeline.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main(int(sys.argv[1]))
