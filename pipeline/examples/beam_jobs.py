"""Running Beam pipelines for a command: options, progress, jobs sent to remote runners, errors of workers."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult
from rich.console import Console

from bert_keras.errors import InputError
from components.io.shards import read_json, write_json

# Explicit, because Beam's default first tries to download a runner in another language.
BEAM_PIPELINE_ARGS = ("--runner=FnApiRunner",)
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_BETWEEN_LINES = 15.0


class SentJobs:
    """Record of jobs sent to a remote runner, which outlive the command: a JSON list of [stage, runner, job id].

    `tell`, which prints a line for the user, is called at once for jobs of an earlier command.
    """

    def __init__(self, path: str, tell: Callable[[str], None]):
        self._path, self._tell = path, tell
        self._sent: list[list[str]] = read_json(path) if FileSystems.exists(path) else []
        for stage, runner, identity in self._sent:
            tell(
                f"{stage}: an earlier command sent job {identity} to {runner}; cancel it if it still runs: "
                "its output is made again"
            )

    def note(self, stage: str, result: PipelineResult) -> None:
        """Record a job that was sent; local runners have no job ids."""
        identity = getattr(result, "job_id", None) or getattr(result, "_job_id", None)
        if identity := identity() if callable(identity) else identity:
            self._sent.append([stage, type(result).__name__.removesuffix("PipelineResult"), str(identity)])
            write_json(self._path, self._sent)
            self._tell(f"{stage}: sent as job {identity}")


@contextlib.contextmanager
def beam_pipeline(
    beam_args: Sequence[str], noted: Callable[[PipelineResult], None] = lambda result: None
) -> Iterator[beam.Pipeline]:
    """A pipeline that runs at the end of the block; `noted` receives Beam's result object when the job was sent."""
    pipeline = beam.Pipeline(options=beam_options(beam_args))
    run = pipeline.run

    def run_and_note(*args, **options) -> PipelineResult:
        result = run(*args, **options)
        noted(result)
        return result

    pipeline.run = run_and_note  # type: ignore[method-assign]  # the block's end calls it, and then waits
    with pipeline:
        yield pipeline


def beam_options(beam_args: Sequence[str]) -> PipelineOptions:
    # For a cluster Beam runs `pip freeze`; without pip, as uv makes environments, that prints an error of pip's.
    quiet = [] if importlib.util.find_spec("pip") else ["--experiments=disable_logging_submission_environment"]
    return PipelineOptions([*BEAM_PIPELINE_ARGS, *quiet, *beam_args])


@contextlib.contextmanager
def input_errors() -> Iterator[None]:
    """Restore an `InputError` of a worker process, which arrives here as text."""
    try:
        yield
    except Exception as error:  # each runner has its own type
        if messages := re.findall(rf"{InputError.__module__}\.InputError: (.*)", str(error)):
            raise InputError(messages[-1]) from error
        raise


def peak_memory_bytes() -> int:
    """Peak memory of this process or of its largest worker, whichever is larger."""
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return peak * 1024  # Linux counts kilobytes


class StageProgress:
    """Context manager that reports on standard error how much a stage has written below a local folder.

    Beam's local runners report nothing before they end, but their files are visible at once.
    """

    def __init__(self, name: str, folder: str):
        self._name, self._folder = name, folder
        self._console = Console(stderr=True, highlight=False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> StageProgress:
        self._started = time.monotonic()
        self._files_before, self._bytes_before = _written(self._folder)
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self._console.print(self._line(), soft_wrap=True)

    def _watch(self) -> None:
        last_line = self._started
        with self._console.status(self._name) as status:
            while not self._stop.wait(SECONDS_BETWEEN_LOOKS):
                if self._console.is_terminal:
                    status.update(self._line())
                elif time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
                    self._console.print(self._line(), soft_wrap=True)
                    last_line = time.monotonic()

    def _line(self) -> str:
        files, size = _written(self._folder)
        return (
            f"{self._name:<12} {time.monotonic() - self._started:6.0f} s   "
            f"{(size - self._bytes_before) / 1e6:,.1f} MB in {files - self._files_before:,} files"
        )


def _written(folder: str) -> tuple[int, int]:
    """Number and total bytes of the files below a local folder."""
    files = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.path.getsize(os.path.join(path, name))
                files += 1
            except OSError:  # renamed or removed in the meantime
                continue
    return files, size
