"""Runs a pipeline in this process: TFX's LocalDagRunner, Beam's in-process runner."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator

import absl.logging
from rich.console import Console
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline

from pipeline import example_generation
from pipeline.run_dir import log_file

# The workers are this process: there is no image. Without one, TFX packs itself for workers elsewhere, at every stage
# anew, and leaves 45 MB of it in the folder for temporary files.
BEAM_PIPELINE_ARGS = (*example_generation.BEAM_PIPELINE_ARGS, "--sdk_container_image=none")


def run(pipeline: Pipeline, run_dir: str) -> None:
    """Runs every stage that is not cached; prints a line a stage, the libraries' own messages go to a file.

    Raises:
        Exception: whatever stopped a stage.
    """
    path = log_file(run_dir)
    with _logging_into(path), _standard_error_into(path):
        LocalDagRunner().run(pipeline)


class _StageLines(logging.Handler):
    """Turns the runner's messages on stages into a line on the terminal."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._console = Console(highlight=False)

    def emit(self, record: logging.LogRecord) -> None:
        if match := re.fullmatch(r"Component (\S+) is running\.", record.getMessage()):
            self._console.print(f"[bold]{match[1]}[/bold]")


@contextlib.contextmanager
def _logging_into(path: str) -> Iterator[None]:
    """Sends Python's log records to a file, and the stages' lines to the terminal."""
    root = logging.getLogger()
    handlers, level, verbosity = root.handlers[:], root.level, absl.logging.get_verbosity()
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.handlers[:] = [file, _StageLines()]
    root.setLevel(logging.INFO)
    # absl sets its logger back to its own verbosity now and then.
    absl.logging.set_verbosity(absl.logging.INFO)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        absl.logging.set_verbosity(verbosity)
        file.close()


@contextlib.contextmanager
def _standard_error_into(path: str) -> Iterator[None]:
    """Sends what C++ code (XLA, TensorFlow) writes there to a file; its log levels cannot all be set."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(path, "ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
