"""Restarts a command when one of its Beam workers dies.

If a worker process is killed, e.g. for lack of memory, Beam's local runner fails or waits for it forever. A restart is
safe, like a retry of a bundle on Dataflow: the command writes to temporary names, and equal bytes each time.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

import psutil

from bert_keras.training.preemption import ctrl_c

ATTEMPTS = 3
_ATTEMPT = "BERT_TFX_ATTEMPT"  # environment variable, kept by the restarted command
# A failing stage terminates its workers too: time for it to report its own error first, in looks and not by the clock,
# so that a starved process has as much.
_LOOK_SECONDS, _LOOKS = 0.1, 60
# Newer versions of Beam do not wait: the runner fails with this message.
_WORKER_GONE = "Channel closed prematurely"


@contextlib.contextmanager
def restart_if_a_worker_dies(tell: Callable[[str], None]) -> Iterator[None]:
    """Within the block: if a worker process dies, kill the others and restart this command, up to `ATTEMPTS` times."""
    running = threading.Event()
    running.set()
    previous_hook = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        # Beam's message, from the thread that waits for the worker.
        if "Worker subprocess exited" not in str(args.exc_value):
            previous_hook(args)
            return
        for _ in range(_LOOKS):
            time.sleep(_LOOK_SECONDS)
            if not running.is_set() or ctrl_c.is_set():
                return
        _restart(tell)

    threading.excepthook = hook
    try:
        yield
    except RuntimeError as error:
        if _WORKER_GONE not in str(error) or ctrl_c.is_set():
            raise
        _restart(tell)
    finally:
        running.clear()
        threading.excepthook = previous_hook


def _restart(tell: Callable[[str], None]) -> None:
    attempt = int(os.environ.get(_ATTEMPT, "1"))
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if attempt == ATTEMPTS:
        tell(f"workers were killed in {ATTEMPTS} attempts: use fewer workers, or a smaller corpus.bucket_bytes")
        os._exit(1)
    tell(f"a worker was killed (too little memory?): restarting, {attempt} of {ATTEMPTS - 1}")
    os.environ[_ATTEMPT] = str(attempt + 1)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
