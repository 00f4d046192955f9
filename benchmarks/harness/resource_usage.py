"""Resource usage of a command and its children, counted by the kernel: CPU seconds and peak resident memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

# A small process starts the command, because a child's peak includes its parent's memory at the start.
_STARTER = """
import json, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([code, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024], file)
"""


class Usage(NamedTuple):
    """Resources used by a command.

    Attributes:
        code: exit status.
        wall_seconds: seconds from start to end.
        cpu_seconds: CPU seconds of the process and its awaited children.
        peak_bytes: maximum resident memory of any of them.
    """

    code: int
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int


def measure(
    command: Sequence[str],
    *,
    stdout: IO | int | None = None,
    stderr: IO | int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Usage:
    """Run a command to its end."""
    with tempfile.NamedTemporaryFile() as counted:
        started = time.monotonic()
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, counted.name]
        subprocess.run([*starter, *command], stdout=stdout, stderr=stderr, env=env, cwd=cwd, check=True)
        wall_seconds = time.monotonic() - started
        code, cpu_seconds, peak_bytes = json.load(counted)
    return Usage(code, wall_seconds, cpu_seconds, peak_bytes)
