"""Runs the nodes of a pipeline one after another in this process, with Beam's in-process runner."""

import contextlib
import datetime
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

import absl.logging
from rich.console import Console

from bert_keras import notices
from bert_keras.files import locked
from pipeline.runs.request import RunRequest
from pipeline.runs.resolve import resolve
from pipeline.runs.run_dir import log_file, temporary_run_dir


def run(request: RunRequest) -> dict[str, Any]:
    """Run every node that is not cached, and return the summary; print a line per node, log messages to a file.

    InputError: the input cannot be used, or another run is using the directory. Any error of a node is raised, too.
    """
    run_dir, run_id = request.run_dir, datetime.datetime.now().strftime("%Y%m%dT%H%M%S.%f")
    with contextlib.ExitStack() as whole_run:
        with temporary_run_dir(run_dir):
            whole_run.enter_context(locked(run_dir, "--run-dir"))
            spec = resolve(request, run_id)
            from pipeline.runners.run_steps import compile_run, finish, run_node

            console, log = Console(highlight=False, soft_wrap=True), log_file(run_dir)
            nodes = compile_run(spec, run_id)
            with _logging_into(log), _standard_error_into(log):
                for node in nodes:
                    console.print(f"[bold]{node}[/bold]")
                    if not run_node(run_dir, run_id, node):
                        break
        return finish(run_dir, run_id)


@contextlib.contextmanager
def _logging_into(path: str) -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, verbosity = root.handlers[:], root.level, absl.logging.get_verbosity()
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.handlers[:] = [file]
    root.setLevel(logging.INFO)
    # absl resets its logger to its own verbosity now and then.
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
    """Redirect stderr at the file descriptor: C++ messages (XLA, TensorFlow) do not all obey log levels."""
    sys.stderr.flush()
    terminal = notices.terminal = os.dup(2)
    with open(path, "ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        notices.terminal = 2
        os.close(terminal)
