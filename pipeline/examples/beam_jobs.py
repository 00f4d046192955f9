"""Running Beam pipelines for a command: options, progress, jobs of remote runners, workers that fail or die."""

import contextlib
import importlib.util
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult

from bert_keras.errors import InputError
from bert_keras.notices import tell
from bert_keras.training.preemption import ctrl_c

# Explicit, because Beam's default first tries to download a runner in another language.
BEAM_PIPELINE_ARGS = ("--runner=FnApiRunner",)
SECONDS_BETWEEN_LINES = 15.0
ATTEMPTS = 3
_ATTEMPT = "BERT_TFX_ATTEMPT"  # environment variable, kept by the restarted command
# A failing stage terminates its workers too: time for it to report its own error first.
SECONDS_TO_FAIL = 6.0


@contextlib.contextmanager
def beam_pipeline(beam_args: Sequence[str], stage: str) -> Iterator[beam.Pipeline]:
    """A pipeline that runs at the end of the block; prints the id of a remote runner's job, which may outlive it.

    An `InputError` of a worker process, which arrives here as text, is raised as such.
    """
    pipeline = beam.Pipeline(options=beam_options(beam_args))
    run = pipeline.run

    def run_and_tell(*args, **options) -> PipelineResult:
        result = run(*args, **options)
        identity = getattr(result, "job_id", None) or getattr(result, "_job_id", None)
        if identity := identity() if callable(identity) else identity:  # local runners have none
            tell(f"{stage}: sent as job {identity}")
        return result

    pipeline.run = run_and_tell  # type: ignore[method-assign]  # the block's end calls it, and then waits
    try:
        with pipeline:
            yield pipeline
    except Exception as error:  # each runner has its own type
        if messages := re.findall(rf"{InputError.__module__}\.InputError: (.*)", str(error)):
            raise InputError(messages[-1]) from error
        raise


def beam_options(beam_args: Sequence[str]) -> PipelineOptions:
    # For a cluster Beam runs `pip freeze`; without pip, as uv makes environments, that prints an error of pip's.
    quiet = [] if importlib.util.find_spec("pip") else ["--experiments=disable_logging_submission_environment"]
    return PipelineOptions([*BEAM_PIPELINE_ARGS, *quiet, *beam_args])


def peak_memory_bytes() -> int:
    """Peak memory of this process or of its largest worker, whichever is larger."""
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return peak * 1024  # Linux counts kilobytes


@contextlib.contextmanager
def progress(stage: str, folder: str) -> Iterator[None]:
    """Print to standard error, now and then and at the end, how much a stage has written below a local folder.

    Beam's local runners report nothing before they end, but their files are visible at once.
    """
    ended, started, (files_before, bytes_before) = threading.Event(), time.monotonic(), _written(folder)

    def report() -> None:
        files, size = _written(folder)
        megabytes = f"{(size - bytes_before) / 1e6:,.1f} MB in {files - files_before:,} files"
        print(f"{stage:<12} {time.monotonic() - started:6.0f} s   {megabytes}", file=sys.stderr, flush=True)

    def watch() -> None:
        while not ended.wait(SECONDS_BETWEEN_LINES):
            report()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    report()


def _written(folder: str) -> tuple[int, int]:
    """Number and total bytes of the files below a local folder."""
    files = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # renamed or removed in the meantime
                size += os.path.getsize(os.path.join(path, name))
                files += 1
    return files, size


@contextlib.contextmanager
def restart_if_a_worker_dies() -> Iterator[None]:
    """Within the block: if a worker process dies, kill the others and restart this command, up to `ATTEMPTS` times.

    If one is killed, e.g. for lack of memory, Beam's local runner fails or waits for it forever. A restart is safe,
    like a retry of a bundle on Dataflow: the command writes to temporary names, and equal bytes each time.
    """
    ended, previous_hook = threading.Event(), threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        # Beam's message, from the thread that waits for the worker.
        if "Worker subprocess exited" not in str(args.exc_value):
            previous_hook(args)
        elif not ended.wait(SECONDS_TO_FAIL) and not ctrl_c.is_set():
            _restart()

    threading.excepthook = hook
    try:
        yield
    except RuntimeError as error:  # newer versions of Beam do not wait
        if "Channel closed prematurely" not in str(error) or ctrl_c.is_set():
            raise
        _restart()
    finally:
        ended.set()
        threading.excepthook = previous_hook


def _restart() -> None:
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
