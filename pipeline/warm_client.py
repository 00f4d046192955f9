"""Runs a command of `bert-tfx` in a process that has imported TFX already: `bert-tfx warm COMMAND ...`.

Importing TFX costs 10 to 25 seconds, a fork of a process that has done so costs none. Such a server
(`pipeline.warm_server`) is started by the first client and ends when it was not asked for a while. There is one for
each user, code, and set of variables that libraries read when they are imported; its socket lies in a folder that only
this user can enter. A command has its client's arguments, environment, folder and standard streams, and lives as long:
a signal reaches it, and when the client or the server is killed, it is too.

On the socket: eight bytes (the length) with the three standard streams, then a request as JSON; then a byte for each
signal. The answer is the command's wait status, four bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from bert_keras.errors import InputError, StageError

# Read when a library is imported, or by the interpreter: a server serves those who have the same.
_READ_ON_IMPORT = ("PYTHON", "LANG", "LC_", "LD_", "TF_", "KERAS_", "XLA_", "CUDA_", "OMP_", "OPENBLAS_", "GRPC_")
# What else a server needs; passwords are not among it, they come with each request.
_NEEDED = ("PATH", "HOME", "USER", "TMPDIR", "TZ")
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LENGTH_BYTES, STATUS_BYTES = 8, 4


def warm(context: typer.Context, command: Annotated[list[str], typer.Argument(metavar="COMMAND...")]) -> None:
    """Run a command of bert-tfx in a process that has imported TFX already.

    The first such command starts a server that imports TFX once and is forked for each; it ends when idle. Everything
    else is as without `warm`: output, signals, exit code.
    """
    raise typer.Exit(run(command))


def run(words: list[str], folder: Path | None = None) -> int:
    """Runs `bert-tfx WORDS...` in a warm process; returns its exit code, 128 + N if signal N killed it.

    Raises:
        StageError: the server ended before the command did.
    """
    folder = folder or _folder()
    environ = {name: value for name, value in os.environ.items() if name.startswith(_READ_ON_IMPORT)}
    log = folder / f"{_key(environ)}.log"
    with _connect(folder / f"{_key(environ)}.sock", log, environ) as server:
        request = json.dumps({"words": words, "environ": dict(os.environ), "cwd": os.getcwd()}).encode()
        socket.send_fds(server, [len(request).to_bytes(LENGTH_BYTES, "big")], [0, 1, 2])
        server.sendall(request)

        def forward(number: int, _: object) -> None:
            with contextlib.suppress(OSError):  # it has just ended
                server.send(bytes([number]))

        before = {number: signal.signal(number, forward) for number in _FORWARDED}
        try:
            status = server.recv(STATUS_BYTES, socket.MSG_WAITALL)
        except ConnectionResetError:
            status = b""
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    if len(status) < STATUS_BYTES:
        raise StageError(f"the server of warm processes ended; {log} may say why")
    code = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))
    if code < 0:
        print(f"bert-tfx: {words[0]} was killed by {signal.Signals(-code).name}", file=sys.stderr)
    return code if code >= 0 else 128 - code


def code_of_this_project() -> str:
    """A hash of the sources that a server has imported, or will."""
    import bert_keras
    import components
    import pipeline
    import serving
    from components.code_version import code_fingerprint

    return code_fingerprint(pipeline, components, bert_keras, serving)


def _key(environ: Mapping[str, str]) -> str:
    """A server's name; short, for a socket's path may have 107 bytes."""
    told = [code_of_this_project(), sys.prefix, *(f"{name}={environ[name]}" for name in sorted(environ))]
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]


def _folder() -> Path:
    """Where this user's servers listen.

    Raises:
        InputError: another user made it, or can enter it.
    """
    path = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"bert-tfx-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise InputError(f"{path}: must be a folder that only its owner, user {os.getuid()}, can enter; remove it")
    return path


def _connect(path: Path, log: Path, environ: Mapping[str, str]) -> socket.socket:
    """A connection to the server at a path, which is started if there is none."""
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
            return connection
        except (FileNotFoundError, ConnectionRefusedError):  # none yet, or it was killed
            path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(128)
            needed = {name: os.environ[name] for name in _NEEDED if name in os.environ}
            with open(log, "wb") as out:
                subprocess.Popen(
                    [sys.executable, "-m", "pipeline.warm_server", str(listener.fileno())],
                    pass_fds=[listener.fileno()],
                    env={**environ, **needed},
                    cwd=Path(__file__).parents[1],  # `-m` looks there first
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
        # It listens before it has imported anything, and answers when it has.
        connection.connect(str(path))
        return connection
