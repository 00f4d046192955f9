"""Running Beam pipelines for a command: options, jobs sent to remote runners, errors of workers."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import resource
from collections.abc import Callable, Iterator, Sequence

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult

from bert_keras.errors import InputError
from components.io.shards import read_json, write_json

# Explicit, because Beam's default first tries to download a runner in another language.
BEAM_PIPELINE_ARGS = ("--runner=FnApiRunner",)


class SentJobs:
    """Record of jobs sent to a remote runner, which outlive the command.

    Args:
        path: path of the JSON list of [stage, runner, job id].
        tell: prints a line for the user; called at once for jobs of an earlier command.
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
