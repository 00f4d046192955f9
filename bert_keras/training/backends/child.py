"""A training on JAX started from TensorFlow: Keras fixes its backend when it is imported, so it is a child process.

The child leaves the training's checkpoints. The parent then finds the training finished, and exports its weights.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras

from bert_keras.errors import Diverged, InputError, Preempted, StageError
from bert_keras.training.config import OptimizationConfig

_ERRORS = {error.__name__: error for error in (Diverged, InputError, Preempted, StageError)}
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def needs_child(config: OptimizationConfig) -> bool:
    """Return whether a training needs a child process; InputError for one on TensorFlow in a process of JAX."""
    here = keras.backend.backend()
    if config.backend == "tensorflow" and here != "tensorflow":
        raise InputError(
            f"training.backend is tensorflow, but Keras computes with {here} here: set training.backend=jax, or "
            "install bert-tfx[pipeline] and unset KERAS_BACKEND"
        )
    return config.backend != here


def train_in_child(module: str, job: Mapping[str, Any]) -> None:
    """Run `python -m MODULE` with KERAS_BACKEND=jax, which calls `run_child` with its training, and wait for it.

    SIGTERM and Ctrl-C reach the child, which writes a checkpoint. It stops as well if this process dies. Its errors
    (`_ERRORS`) are raised here; StageError if it died.
    """
    with tempfile.TemporaryDirectory() as folder:
        error_file = os.path.join(folder, "error.json")
        child = subprocess.Popen(
            [sys.executable, "-m", module, error_file],
            env={**os.environ, "KERAS_BACKEND": "jax"},
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C comes once, by this process
        )
        with _forwarded_to(child) as received:
            assert child.stdin is not None
            # Open until the child ends: its end tells the child that this process has died.
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(json.dumps(job) + "\n")
                child.stdin.flush()
            code = child.wait()
        if os.path.exists(error_file):
            with open(error_file, encoding="utf-8") as file:
                name, message = json.load(file)
            raise _ERRORS[name](message)
    if code and received:
        name = signal.Signals(received[0]).name
        raise Preempted(f"{name} came before the training had begun; run the same command to go on")
    if code:
        reason = f"signal {-code} ended" if code < 0 else "its last lines say why; it ended"
        raise StageError(f"the training on JAX failed ({reason} the process); run the same command to resume")


def run_child(train: Callable[[dict[str, Any]], None]) -> None:
    """Call `train` with the job of the parent, in the process that `train_in_child` started."""
    (error_file,) = sys.argv[1:]
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        train(job)
    except tuple(_ERRORS.values()) as error:
        with open(error_file, "w", encoding="utf-8") as file:
            json.dump([type(error).__name__, str(error)], file)
        sys.exit(1)


def _stop_with_parent() -> None:
    # Not `sys.stdin.read`, whose lock would abort the interpreter when it exits.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _forwarded_to(child: subprocess.Popen) -> Iterator[list[int]]:
    """Within the block, signals to this process go to the child; only a main thread receives any. Lists them."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def forward(number: int, _: object) -> None:
        received.append(number)
        child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
