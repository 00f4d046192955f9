"""Lock of an output folder, local or in a store, so that one command at a time writes to it.

WORK/lock        for a local folder: a file lock, released however the command ends
WORK/owner.json  for a store, which has no locks: the owner, updated repeatedly while its command runs
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import psutil
from apache_beam.io.filesystems import FileSystems
from filelock import FileLock, Timeout

from bert_keras.errors import InputError, StageError
from components.io.shards import read_json, remove_file, write_json

# Interval of the owner's updates; time without an update after which it counts as dead; delay before a claim is read
# back: of two simultaneous claims the later one wins.
BEAT_SECONDS, SILENCE_SECONDS, SETTLING_SECONDS = 20.0, 90.0, 2.0


@contextlib.contextmanager
def locked_output_dir(work_dir: str, output_dir: str, tell: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Lock the folder; yield a check that raises `StageError` if another command has taken it over.

    InputError: another command is using the folder; names it.
    """
    if "://" not in work_dir:
        os.makedirs(work_dir, exist_ok=True)
        lock = FileLock(f"{work_dir}/lock", timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise _taken(output_dir, "") from error
        try:
            yield lambda: None
        finally:
            lock.release()
        return
    path = f"{work_dir}/owner.json"
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "run": uuid.uuid4().hex, "beat": 0}
    mine["since"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    other = _read(path)
    if other and not _gone(other) and _lives(path, other, output_dir, tell):
        raise _taken(output_dir, _name(other))
    write_json(path, mine)
    time.sleep(SETTLING_SECONDS)
    if not _is(mine, owner := _read(path)):
        raise _taken(output_dir, _name(owner))
    ended, lost = threading.Event(), threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            # If the store does not answer, the next beat tries again.
            with contextlib.suppress(Exception):
                if not _is(mine, _read(path)):
                    lost.set()
                    return
                mine["beat"] = int(str(mine["beat"])) + 1
                write_json(path, mine)

    def check() -> None:
        if lost.is_set() or not _is(mine, owner := _read(path)):
            raise StageError(f"{output_dir}: taken over by {_name(owner)}, because this command sent no sign of life")

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        yield check
    finally:
        ended.set()
        beating.join()
        if _is(mine, _read(path)):
            remove_file(path)


def _taken(output_dir: str, name: str) -> InputError:
    process = f" ({name})" if name else ""
    return InputError(f"{output_dir}: in use by another bert-tfx{process}; wait, or give another --output")


def _read(path: str) -> dict:
    """The owner; empty without one."""
    return read_json(path) if FileSystems.exists(path) else {}


def _is(mine: dict, owner: dict) -> bool:
    return owner.get("run") == mine["run"]


def _name(owner: dict) -> str:
    return f"process {owner['pid']} on {owner['host']}, since {owner['since']}" if owner else "another command"


def _gone(owner: dict) -> bool:
    """Whether the owner was a process of this machine that has ended, or this process before its restart."""
    here = owner["host"] == socket.gethostname()
    return here and (owner["pid"] == os.getpid() or not psutil.pid_exists(owner["pid"]))


def _lives(path: str, owner: dict, output_dir: str, tell: Callable[[str], None]) -> bool:
    """Whether the owner updates its claim within `SILENCE_SECONDS` by this machine's clock."""
    tell(f"{output_dir}: claimed by {_name(owner)}; waiting {SILENCE_SECONDS:.0f} s for a sign of life")
    end = time.monotonic() + SILENCE_SECONDS
    while time.monotonic() < end:
        time.sleep(min(BEAT_SECONDS / 4, SILENCE_SECONDS / 4))
        if (now := _read(path)) != owner:
            return bool(now)
    return False
