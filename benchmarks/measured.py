"""What a command uses, as the kernel counts it: CPU seconds and peak resident memory, of it and of all it starts."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

# The command is started by a small process: a child's peak counts what its parent had in memory when it began.
_STARTER = """
import json, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([code, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024], file)
"""


class Usage(NamedTuple):
    """What a command used.

    Attributes:
        code: its exit status.
        wall_seconds: from start to end.
        cpu_seconds: of the process and of those it waited for.
        peak_bytes: most resident memory that one of them had.
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
    """Runs a command to its end."""
    with tempfile.NamedTemporaryFile() as counted:
        started = time.monotonic()
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, counted.name]
        subprocess.run([*starter, *command], stdout=stdout, stderr=stderr, env=env, cwd=cwd, check=True)
        wall_seconds = time.monotonic() - started
        code, cpu_seconds, peak_bytes = json.load(counted)
    return Usage(code, wall_seconds, cpu_seconds, peak_bytes)
