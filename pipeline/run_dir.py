"""Where the parts of a run directory lie.

artifacts/        what the stages made, as TFX lays it out
metadata.sqlite   ML Metadata: which execution made what from what
training/HASH/    checkpoints and logs, kept when a stage fails
serving/VERSION/  pushed models, as TensorFlow Serving reads them
schema/           the curated schema of the examples
lock              held while a process runs the pipeline
compiled/RUN.*    what each run was asked for, and its compiled pipeline
pipeline.log      what the libraries say
summary.json, report.html
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from filelock import FileLock, Timeout

from bert_keras.errors import InputError


@contextlib.contextmanager
def made_for_run(run_dir: str) -> Iterator[str]:
    """The directory's absolute path; it is made if it is not there, and goes again if the input cannot be used."""
    path, existed = os.path.abspath(run_dir), os.path.isdir(run_dir)
    try:
        os.makedirs(path, exist_ok=True)
        yield path
    except InputError:
        if not existed:
            shutil.rmtree(path)
        raise


@contextlib.contextmanager
def claimed(run_dir: str) -> Iterator[None]:
    """Keeps others from running in the directory meanwhile; however this process ends, it is free again.

    Raises:
        InputError: another process runs in it.
    """
    lock = FileLock(os.path.join(run_dir, "lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise InputError(f"{run_dir}: another bert-tfx runs in it; wait for it, or give another --run-dir") from error
    try:
        yield
    finally:
        lock.release()


def artifacts_dir(run_dir: str) -> str:
    """TFX's pipeline root."""
    return os.path.join(run_dir, "artifacts")


def metadata_file(run_dir: str) -> str:
    """ML Metadata's SQLite file."""
    return os.path.join(run_dir, "metadata.sqlite")


def training_dir(run_dir: str) -> str:
    """Under it, each training has a folder of checkpoints and logs."""
    return os.path.join(run_dir, "training")


def serving_dir(run_dir: str) -> str:
    """Where blessed models are pushed: a folder a version."""
    return os.path.join(run_dir, "serving")


def compiled_dir(run_dir: str) -> str:
    """What each run was asked for, and its compiled pipeline (`pipeline.run_request`)."""
    return os.path.join(run_dir, "compiled")


def schema_dir(run_dir: str) -> str:
    """Curated schemas, named by a hash of their content."""
    return os.path.join(run_dir, "schema")


def log_file(run_dir: str) -> str:
    """What the libraries say while the pipeline runs."""
    return os.path.join(run_dir, "pipeline.log")
