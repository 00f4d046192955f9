"""A command one of whose Beam workers dies starts again, instead of waiting for it without end.

Beam's local runner waits for a worker process that is gone (killed for want of memory, say), or fails. What the command
makes is made under temporary names and is the same bytes each time, so it starts again, as Dataflow does with a share.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

import psutil

ATTEMPTS = 3
_ATTEMPT = "BERT_TFX_ATTEMPT"  # survives the start of the new command
# A stage that fails takes its workers down: it says itself why, if it is given the time.
_GRACE_SECONDS = 3.0
# Newer Beams do not wait: the runner fails with this.
_WORKER_GONE = "Channel closed prematurely"


@contextlib.contextmanager
def start_again_if_a_worker_dies(tell: Callable[[str], None]) -> Iterator[None]:
    """While the block runs: a dead worker process ends all others, and this command starts again, or gives up.

    Args:
        tell: is called with a line for the user.
    """
    running = threading.Event()
    running.set()
    others = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        # Beam's words, of the thread that waits for the worker.
        if "Worker subprocess exited" not in str(args.exc_value):
            others(args)
            return
        time.sleep(_GRACE_SECONDS)
        if running.is_set():
            _start_again(tell)

    threading.excepthook = hook
    try:
        yield
    except RuntimeError as error:
        if _WORKER_GONE not in str(error):
            raise
        _start_again(tell)
    finally:
        running.clear()
        threading.excepthook = others


def _start_again(tell: Callable[[str], None]) -> None:
    attempt = int(os.environ.get(_ATTEMPT, "1"))
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if attempt == ATTEMPTS:
        tell(f"a worker was killed, {ATTEMPTS} times in a row: give fewer workers, or a smaller corpus.bucket_bytes")
        os._exit(1)
    tell(f"a worker was killed (too little memory?): starting again, {attempt} of {ATTEMPTS - 1}")
    os.environ[_ATTEMPT] = str(attempt + 1)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
