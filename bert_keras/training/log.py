"""What a training run says: a JSON-lines file, TensorBoard's event files, and its progress.

Progress is a bar on a terminal, otherwise a line every 20 seconds.
"""

from __future__ import annotations

import datetime
import json
import os
import time

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tensorboard.plugins.histogram import metadata as histogram_metadata

from bert_keras.files import atomic_write_anywhere, json_text

LOG_FILE = "log.jsonl"
HISTOGRAM_BUCKETS = 30
SECONDS_BETWEEN_LINES = 20.0


class TrainingLog:
    """Writer of the log; drops records of a killed run after its checkpoint at `first_step`."""

    def __init__(self, directory: str, first_step: int):
        tf.io.gfile.makedirs(directory)
        path = os.path.join(directory, LOG_FILE)
        kept: list[str] = []
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                # A kill may have truncated the last line, which is then after the checkpoint.
                lines = [line for line in file if line.endswith("\n")]
            kept = [line for line in lines if json.loads(line)["step"] <= first_step]
        atomic_write_anywhere(path, "".join(kept))
        self._file = tf.io.gfile.GFile(path, "a")
        self._writers = {
            kind: tf.summary.create_file_writer(os.path.join(directory, "tensorboard", kind))
            for kind in ("train", "eval")
        }

    def write(self, kind: str, step: int, metrics: dict[str, float]) -> None:
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **metrics}
        self._file.write(json_text(record) + "\n")
        self._file.flush()
        with self._writers[kind].as_default():
            for name, value in metrics.items():
                tf.summary.scalar(name, value, step=step)
            self._writers[kind].flush()

    def write_histograms(self, step: int, model: keras.Model) -> None:
        """Write histograms of all weights of the model for TensorBoard.

        NumPy counts them: `tf.summary.histogram` needs 240 bytes per value, 6 GB for BERT-base's word embeddings.
        """
        metadata = histogram_metadata.create_summary_metadata(display_name=None, description=None)
        with self._writers["train"].as_default():
            for variable in model.trainable_variables:
                values = keras.ops.convert_to_numpy(variable)
                # The training loop reports weights that are not finite at the next step.
                counts, edges = np.histogram(values[np.isfinite(values)], HISTOGRAM_BUCKETS)
                buckets = np.stack([edges[:-1], edges[1:], counts], axis=1)  # rows: (from, to, count)
                tf.summary.write(variable.path, buckets.astype("float64"), step=step, metadata=metadata)


class TrainingProgress:
    """A context manager that shows progress; call `update` after each call of the compiled loop.

    Args:
        num_train_steps: total number of steps.
        first_step: steps done before.
        devices: printed first, if given.
        quiet: show nothing.
    """

    def __init__(self, num_train_steps: int, first_step: int, devices: str = "", quiet: bool = False):
        self._total, self._first, self._devices = num_train_steps, first_step, devices
        self._console = Console(quiet=quiet)
        columns = (
            "training",
            BarColumn(20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            "eta",
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("", total=num_train_steps, completed=first_step, text="")

    def __enter__(self) -> TrainingProgress:
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
