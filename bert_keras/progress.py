"""What one sees while a model trains: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 20.0


class TrainingProgress:
    """A context manager; `update` after each call of the compiled loop.

    Args:
        num_train_steps: steps in all.
        first_step: steps done before.
        quiet: shows nothing.
    """

    def __init__(self, num_train_steps: int, first_step: int, quiet: bool = False):
        self._total, self._first = num_train_steps, first_step
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
        if self._first:
            self._console.print(f"resuming training at step {self._first} of {self._total}", highlight=False)
        self._bar.start()
        self._last_line = time.monotonic()
        return self

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """Shows the metrics of the steps up to `step`, as `TrainingLoop` logs them."""
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
        self._bar.update(self._task, completed=step, text=text)
        if not self._console.is_terminal and (now - self._last_line > SECONDS_BETWEEN_LINES or step == self._total):
            self._console.print(f"training step {step}/{self._total}  {text}", highlight=False, soft_wrap=True)
            self._last_line = now

    def __exit__(self, *exception) -> None:
        self._bar.stop()
