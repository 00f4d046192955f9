"""The number of cores that a process may use."""

import contextlib
import os
from pathlib import Path

# A container's CPU limit: microseconds of CPU in a period, and the period (Linux, admin-guide/cgroup-v2.rst).
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def cores() -> int:
    """Cores available to this process, if the system reports it: at most its container's CPU limit."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # no such file; "max": no limit
        quota, period = map(int, _CPU_LIMIT.read_text().split())
        count = min(count, -(-quota // period))
    return count
