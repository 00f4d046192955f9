"""Layout of a run directory.

artifacts/        artifacts of the stages, in TFX's layout; its pipeline root
metadata.sqlite   ML Metadata; .copy: a copy after the last finished stage
training/HASH/    checkpoints and logs, kept if a stage fails
serving/VERSION/  pushed models, in TensorFlow Serving's layout
schema/           curated schemas of the examples, named by a hash of their content
inputs/HASH.json  files of the corpus and their sizes, named by their fingerprint
inputs/minimal_pairs-HASH.jsonl  the pairs of `gate.minimal_pairs`, named by their content
inputs/leaks-HASH.npz  hashes of the texts of `corpus.decontaminate`, named by its content
lock              held while a process runs the pipeline
compiled/RUN.*    request and compiled pipeline of each run
notices/RUN.NODE.jsonl          notices of a stage that has not finished; without a NODE, of the run's inputs
notices/artifact-ID.NODE.jsonl  of the stage that made this artifact, its first one
pipeline.log      messages of the libraries
summary.json, report.html
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator

from bert_keras.errors import InputError
from bert_keras.files import check_no_pattern

SUMMARY_FILE = "summary.json"
REPORT_FILE = "report.html"


@contextlib.contextmanager
def temporary_run_dir(run_dir: str, option: str = "--run-dir") -> Iterator[str]:
    """Make the directory, which `option` gives; yield its absolute path. On an `InputError`, remove it if it was new.

    It stays if a training has begun. InputError: it is not writable, or TFX would not find artifacts in it.
    """
    path, existed = os.path.abspath(run_dir), os.path.isdir(run_dir)
    check_no_pattern(path, f"give another {option}")
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise InputError(f"{run_dir}: not writable ({error.strerror}); give another {option}") from error
    try:
        yield path
    except InputError:
        if not existed and not os.path.exists(training_dir(path)):
            shutil.rmtree(path)
        raise


def model_name(folder: str) -> str:
    """The name of a model's folder; for a numbered version with the name of its run or model.

    >>> model_name("/models/bert/"), model_name("runs/demo/serving/1"), model_name("served/17")
    ('bert', 'demo/serving/1', 'served/17')
    """
    parts = folder.rstrip("/").split("/")
    version = parts[-1].isdigit()
    return "/".join(parts[-3:] if version and parts[-2:-1] == ["serving"] else parts[-2:] if version else parts[-1:])


def _place(name: str) -> Callable[[str], str]:
    return lambda run_dir: os.path.join(run_dir, name)


artifacts_dir = _place("artifacts")
metadata_file = _place("metadata.sqlite")
training_dir = _place("training")
serving_dir = _place("serving")
compiled_dir = _place("compiled")
schema_dir = _place("schema")
inputs_dir = _place("inputs")
log_file = _place("pipeline.log")


def notices_file(run_dir: str, run_name: str, node: str = "") -> str:
    """The file to record in (`bert_keras.notices`) while a node runs, or while inputs are read."""
    return os.path.join(run_dir, "notices", f"{run_name}.{node}.jsonl")
