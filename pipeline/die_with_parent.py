"""A process that must not outlive the one that started it; Linux alone."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int) -> None:
    """The kernel kills this process when its parent ends, however that ends.

    Args:
        parent: its process id, told by the parent itself: it may have ended before this call.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
