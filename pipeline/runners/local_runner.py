"""Runs the nodes of a pipeline one after the other, in this process; Beam's in-process runner."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

import absl.logging
from rich.console import Console

from pipeline.run_dir import claimed, log_file, made_for_run
from pipeline.run_inputs import find_run_inputs
from pipeline.run_request import RunRequest


def run(request: RunRequest) -> dict[str, Any]:
    """Runs every node that is not cached; prints a line a node, the libraries' own messages go to a file.

    Returns:
        The summary of the run.

    Raises:
        InputError: the input cannot be used, or another run is under way in the directory.
        Exception: whatever stopped a node.
    """
    run_dir, run_id = request.run_dir, datetime.datetime.now().strftime("%Y%m%dT%H%M%S.%f")
    with contextlib.ExitStack() as whole_run:
        with made_for_run(run_dir):
            whole_run.enter_context(claimed(run_dir))
            inputs = find_run_inputs(request)
            from pipeline.orchestrated import compile_run, finish, run_node

            console, log = Console(highlight=False), log_file(run_dir)
            nodes = compile_run(request, inputs, run_id)
            with _logging_into(log), _standard_error_into(log):
                for node in nodes:
                    console.print(f"[bold]{node}[/bold]")
                    run_node(run_dir, run_id, node)
        return finish(run_dir, run_id)


@contextlib.contextmanager
def _logging_into(path: str) -> Iterator[None]:
    """Sends Python's log records to a file."""
    root = logging.getLogger()
    handlers, level, verbosity = root.handlers[:], root.level, absl.logging.get_verbosity()
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.handlers[:] = [file]
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
