"""Client of the fork server: `bert-tfx warm COMMAND ...` runs a command without importing TFX again.

Importing TFX costs 10 to 25 seconds, a fork of a process that has imported it costs none. The first client starts the
server (`pipeline.fork_server.server`), which ends when idle. There is one server per user, code, and set of variables
that libraries read at import; its socket lies in a folder that only this user can enter. A command has its client's
arguments, environment, working directory and standard streams. The client forwards signals; if the client or the server
is killed, so is the command.

Protocol: eight bytes (the length) with the three standard streams, then a request as JSON; then one byte per signal.
The answer is the command's wait status, four bytes.
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
from components.code_version import DATA_SUFFIX, PACKAGES, ROOT

# Read by the interpreter, or by libraries at import: a server has one set of their values.
_READ_ON_IMPORT = ("PYTHON", "LANG", "LC_", "LD_", "TF_", "KERAS_", "XLA_", "CUDA_", "OMP_", "OPENBLAS_", "GRPC_")
# Other variables that a server needs; passwords are not among them, they come with each request.
_NEEDED = ("PATH", "HOME", "USER", "TMPDIR", "TZ")
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LENGTH_BYTES, STATUS_BYTES = 8, 4


def warm(context: typer.Context, command: Annotated[list[str], typer.Argument(metavar="COMMAND...")]) -> None:
    """Run a command of bert-tfx in a fork of a process that has imported TFX.

    The first such command starts a server that imports TFX once, forks for each command, and ends when idle. Output,
    signals and exit code are as without `warm`.
    """
    raise typer.Exit(run(command))


def run(words: list[str], folder: Path | None = None) -> int:
    """Run `bert-tfx WORDS...` on the fork server; return its exit code, 128 + N if signal N killed it.

    Raises:
        StageError: the server ended before the command did.
    """
    folder = folder or _folder()
    environ = {name: value for name, value in os.environ.items() if name.startswith(_READ_ON_IMPORT)}
    log = folder / f"{_key(environ)}.log"
    with _connect(folder / f"{_key(environ)}.sock", log, environ) as server:
        request = json.dumps({"words": words, "environ": dict(os.environ), "cwd": os.getcwd()}).encode()

        def forward(number: int, _: object) -> None:
            with contextlib.suppress(OSError):  # the command has just ended
                server.send(bytes([number]))

        before = {}
        # From the request on there may be a command: a signal waits until it can be forwarded.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        try:
            socket.send_fds(server, [len(request).to_bytes(LENGTH_BYTES, "big")], [0, 1, 2])
            server.sendall(request)
            before = {number: signal.signal(number, forward) for number in _FORWARDED}
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            status = server.recv(STATUS_BYTES, socket.MSG_WAITALL)
        except ConnectionResetError:
            status = b""
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for number, handler in before.items():
                signal.signal(number, handler)
    if len(status) < STATUS_BYTES:
        raise StageError(f"the fork server ended before the command; see {log}")
    code = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))
    if code < 0:
        print(f"bert-tfx: {words[0]} was killed by {signal.Signals(-code).name}", file=sys.stderr)
    return code if code >= 0 else 128 - code


def code_of_this_project() -> str:
    """A hash of all sources, byte by byte (help texts are docstrings): a server runs one version of the code."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*")):
        if path.suffix in (".py", DATA_SUFFIX):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _key(environ: Mapping[str, str]) -> str:
    """A short id of a server: the path of a Unix socket is limited to 107 bytes."""
    parts = [code_of_this_project(), sys.prefix, *(f"{name}={environ[name]}" for name in sorted(environ))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _folder() -> Path:
    """The folder of this user's sockets.

    Raises:
        InputError: the folder belongs to another user, or others can enter it.
    """
    path = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"bert-tfx-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise InputError(f"{path}: must be a folder that only its owner, user {os.getuid()}, can enter; remove it")
    return path


def _connect(path: Path, log: Path, environ: Mapping[str, str]) -> socket.socket:
    """Connect to the server at a path; start one if there is none."""
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
            return connection
        except (FileNotFoundError, ConnectionRefusedError):  # no server yet, or it was killed
            path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(128)
            needed = {name: os.environ[name] for name in _NEEDED if name in os.environ}
            with open(log, "wb") as out:
                subprocess.Popen(
                    [sys.executable, "-m", "pipeline.fork_server_main", str(listener.fileno())],
                    pass_fds=[listener.fileno()],
                    env={**environ, **needed},
                    cwd=Path(__file__).parents[2],  # `-m` searches there first
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
        # The server listens before its imports, and answers after them.
        connection.connect(str(path))
        return connection
