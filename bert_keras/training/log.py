"""The records of a training run: a JSON-lines file, TensorBoard's event files, and its progress.

Event files are TFRecords of `Event` messages (tensorboard/compat/proto/event.proto), the first of which is a version.
Progress is a bar on a terminal, otherwise a line every 20 seconds.
"""

import datetime
import json
import os
import socket
import time
from collections.abc import Mapping

import numpy as np
from etils import epath
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.scalar import metadata as scalar_metadata
from tensorboard.util.tensor_util import make_tensor_proto

from bert_keras.data.tfrecord import frame
from bert_keras.files import atomic_write_anywhere, json_text

LOG_FILE = "log.jsonl"
SECONDS_BETWEEN_LINES = 20.0


class _GrowingFile:
    """A file to which records are appended; each is on the disk, or in the store, when `append` returns."""

    def __init__(self, path: str, content: bytes):
        atomic_write_anywhere(path, content)
        self._path, self._content = path, content
        self._file = None if "://" in path else open(path, "ab")  # noqa: SIM115

    def append(self, record: bytes) -> None:
        if self._file:
            self._file.write(record)
            self._file.flush()
        else:  # nothing can be appended to an object of a store
            self._content += record
            atomic_write_anywhere(self._path, self._content)


class _EventFile:
    """A new event file of TensorBoard, which reads those of a folder in the order of their names."""

    def __init__(self, directory: str):
        epath.Path(directory).mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.v2"
        version = Event(wall_time=time.time(), file_version="brain.Event:2")
        self._file = _GrowingFile(os.path.join(directory, name), frame(version.SerializeToString()))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        summary, metadata = Summary(), scalar_metadata.create_summary_metadata("", "")
        for tag, value in scalars.items():
            summary.value.add(tag=tag, tensor=make_tensor_proto(np.float32(value)), metadata=metadata)
        self._file.append(frame(Event(wall_time=time.time(), step=step, summary=summary).SerializeToString()))


class TrainingLog:
    """Writer of the log; drops records of a killed run after its checkpoint at `first_step`."""

    def __init__(self, directory: str, first_step: int):
        path = os.path.join(directory, LOG_FILE)
        lines: list[bytes] = []
        if epath.Path(path).exists():
            # A kill may have truncated the last line, which is then after the checkpoint.
            lines = [line for line in epath.Path(path).read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        self._file = _GrowingFile(path, b"".join(line for line in lines if json.loads(line)["step"] <= first_step))
        self._events = {kind: _EventFile(os.path.join(directory, "tensorboard", kind)) for kind in ("train", "eval")}

    def write(self, kind: str, step: int, metrics: dict[str, float]) -> None:
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **metrics}
        self._file.append((json_text(record) + "\n").encode())
        self._events[kind].write(step, metrics)


class TrainingProgress:
    """A context manager that shows progress, after `devices`; call `update` after each call of the compiled loop."""

    def __init__(self, num_train_steps: int, first_step: int, devices: str = "", quiet: bool = False):
        self._total, self._first, self._devices = num_train_steps, first_step, devices
        self._console = Console(quiet=quiet)
        columns = "training", BarColumn(20), MofNCompleteColumn(), TextColumn("{task.fields[text]}")
        is_terminal = self._console.is_terminal
        self._bar = Progress(*columns, "eta", TimeRemainingColumn(), console=self._console, disable=not is_terminal)
        self._task = self._bar.add_task("", total=num_train_steps, completed=first_step, text="")

    def __enter__(self) -> "TrainingProgress":
        if self._devices:
            self._console.print(f"training on {self._devices}", highlight=False, soft_wrap=True)
        if self._first:
            line = f"resuming training at step {self._first} of {self._total}"
            self._console.print(line, highlight=False, soft_wrap=True)
        self._bar.start()
        self._last_line = time.monotonic()
        self._first_call: tuple[int, float] | None = None
        return self

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """Show the metrics of the steps up to `step`, as `TrainingLoop` logs them."""
        now = time.monotonic()
        accuracies = {name.removesuffix("_accuracy"): x for name, x in metrics.items() if name.endswith("accuracy")}
        parts = [
            f"loss {metrics['loss']:.3f}",
            *(f"{name} {accuracy:.1%}" for name, accuracy in accuracies.items()),
            f"{metrics['tokens_per_second']:,.0f} tokens/s, {metrics['useful_tokens_per_second']:,.0f} without padding",
        ]
        if "model_flops_utilization" in metrics:
            parts.append(f"MFU {metrics['model_flops_utilization']:.0%}")
        text = "  ".join(parts)
        seconds_left = self._seconds_left(step, now)
        self._bar.update(self._task, completed=step, text=text)
        if not self._console.is_terminal and (now - self._last_line > SECONDS_BETWEEN_LINES or step == self._total):
            line = f"training step {step}/{self._total}  {text}"
            if seconds_left is not None:
                line += f"  {datetime.timedelta(seconds=round(seconds_left))} left"
            self._console.print(line, highlight=False, soft_wrap=True)
            self._last_line = now

    def _seconds_left(self, step: int, now: float) -> float | None:
        """Estimate from the steps after the first call, which compiles; None after that call and after the last."""
        if self._first_call is None:
            self._first_call = step, now
        first_step, first_time = self._first_call
        if step in (first_step, self._total):
            return None
        return (now - first_time) / (step - first_step) * (self._total - step)

    def __exit__(self, *exception) -> None:
        self._bar.stop()
