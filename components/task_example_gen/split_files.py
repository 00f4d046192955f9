"""Maps a task's official files to splits.

Files are looked for in a folder, under the names in `_NAMES`, also compressed (`.gz`); of IMDb the folders train and
test. Without eval rows, some of the training rows are held out (`components.task_example_gen.splits`).
"""

import glob
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from apache_beam.io.filesystems import BeamIOError, FileSystems

from bert_keras.errors import InputError
from bert_keras.tasks.table import Task
from components.corpus_gen.inputs import InputFile
from components.io.shards import matching
from components.task_example_gen.readers.imdb import is_review
from components.task_example_gen.readers.table import TABLES
from components.task_example_gen.task_files import files_below, is_folder

TRAIN, EVAL, TEST = "train", "eval", "test"
EVAL_MISMATCHED, TEST_MISMATCHED = "eval_mismatched", "test_mismatched"
# Rows to train on that only a teacher answers.
UNLABELLED = "unlabelled"
SPLITS = (TRAIN, EVAL, EVAL_MISMATCHED, TEST, TEST_MISMATCHED, UNLABELLED)
# Splits whose rows must have labels.
LABELLED = (TRAIN, EVAL, EVAL_MISMATCHED)

# In lower case, for comparison with file names; * matches anything. The first existing name is used.
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "glue": {
        TRAIN: ("train.tsv", "{task}_train.tsv", "train_sample.tsv", "train_resplit.tsv"),
        EVAL: ("dev.tsv", "{task}_dev.tsv"),
        TEST: ("test.tsv", "{task}_test.tsv", "test_unlabelled.tsv"),
    },
    "cola": {
        TRAIN: ("train.tsv", "in_domain_train.tsv"),
        EVAL: ("dev.tsv", "in_domain_dev.tsv", "dev_in_domain.tsv"),
        TEST: ("test.tsv",),
    },
    "mrpc": {
        TRAIN: ("train.tsv", "msr_paraphrase_train.txt", "mrpc_train.tsv"),
        EVAL: ("dev.tsv", "mrpc_dev.tsv"),
        TEST: ("test.tsv", "msr_paraphrase_test.txt", "mrpc_test.tsv"),
    },
    "sts-b": {
        TRAIN: ("train.tsv", "*sts-train.tsv"),
        EVAL: ("dev.tsv", "*sts-dev.tsv"),
        TEST: ("test.tsv", "*sts-test.tsv"),
    },
    "mnli": {
        TRAIN: ("train.tsv", "multinli.train.ko.tsv"),
        EVAL: ("dev_matched.tsv", "*xnli.dev.ko.tsv"),
        EVAL_MISMATCHED: ("dev_mismatched.tsv",),
        TEST: ("test_matched.tsv", "*xnli.test.ko.tsv"),
        TEST_MISMATCHED: ("test_mismatched.tsv",),
    },
    "table": {
        TRAIN: tuple(f"train{kind}" for kind in TABLES),
        EVAL: tuple(f"{name}{kind}" for name in ("dev", "valid", "val", "eval") for kind in TABLES),
        TEST: tuple(f"test{kind}" for kind in TABLES),
    },
    "swag": {TRAIN: ("train.csv",), EVAL: ("val.csv",), TEST: ("test.csv",)},
    "codah": {
        TRAIN: ("train.tsv", "full_data.tsv", "fold?_train.tsv"),
        EVAL: ("dev.tsv", "fold?_dev.tsv"),
        TEST: ("test.tsv", "fold?_test.tsv"),
    },
    "squad1.1": {
        TRAIN: ("train-v1.1.json", "train-v1.1*.json", "korquad_v1.0_train.json"),
        EVAL: ("dev-v1.1.json", "dev-v1.1*.json", "korquad_v1.0_dev.json"),
    },
    "squad2.0": {TRAIN: ("train-v2.0.json", "train-v2.0*.json"), EVAL: ("dev-v2.0.json", "dev-v2.0*.json")},
    "mlqa": {
        TRAIN: ("train*.json", "cmrc2018_train.json"),
        EVAL: ("dev*.json", "cmrc2018_dev.json"),
        TEST: ("test*.json",),
    },
    "ner": {
        TRAIN: ("train.txt", "eng.train", "wnut17train.conll", "train.conll", "train"),
        EVAL: ("valid.txt", "dev.txt", "eng.testa", "testa", "emerging.dev.conll", "dev.conll", "dev"),
        TEST: ("test.txt", "eng.testb", "testb", "emerging.test.annotated", "test.conll", "test"),
    },
}
_NAMES["sentences"] = _NAMES["queries"] = _NAMES["table"]


def names_of(task: Task) -> dict[str, tuple[str, ...]]:
    """File names to look for, by split."""
    names = _NAMES.get(task.name) or _NAMES[task.reader]
    return {split: tuple(name.format(task=task.name) for name in patterns) for split, patterns in names.items()}


def find_splits(
    task: Task, data: str | None = None, explicit: Mapping[str, Sequence[str]] | None = None
) -> dict[str, list[str]]:
    """Find the files of each split, in the order of SPLITS, for `components.task_example_gen.readers.read_rows`.

    `data` is the official folder, or a training file; `explicit` files by split replace those found in it.
    InputError: there is no training file, or a file does not exist or belongs to two splits.
    """
    named = {split: list(paths) for split, paths in (explicit or {}).items() if paths}
    splits = (_find(task, data.rstrip("/"), required=TRAIN not in named) if data else {}) | named
    if TRAIN not in splits:
        raise InputError(f"{task.name}: no training file; give --data FOLDER or --train FILE")
    seen: dict[str, str] = {}
    for split, paths in splits.items():
        for path in paths:
            if not _exists(path):
                raise InputError(f"{path}: no such file; --{split} takes files")
            if seen.setdefault(path, split) != split:
                raise InputError(f"{path}: was given for {seen[path]} and for {split}; give each its own file")
    return {split: splits[split] for split in SPLITS if split in splits}


def input_files(splits: Mapping[str, Sequence[str]]) -> list[InputFile]:
    """The files behind the paths of splits, each once; their fingerprint is a property of the execution."""
    files: dict[str, int] = {}
    for path in sorted({path for paths in splits.values() for path in paths}):
        if is_folder(path):
            files.update((file.path, file.size) for file in files_below(path) if is_review(file.path))
        else:
            files.update((file.path, file.size_in_bytes) for file in matching(glob.escape(path)))
    return [InputFile(path, size) for path, size in sorted(files.items())]


def _find(task: Task, data: str, required: bool) -> dict[str, list[str]]:
    if task.reader == "imdb":
        return _find_reviews(data)
    if is_folder(data):
        paths = [file.path for file in files_below(data)]
        files = {os.path.basename(path): path for path in paths if "/" not in path[len(data) + 1 :]}
    elif not _exists(data):
        raise InputError(f"{data}: no such file or folder; --data takes the folder of {task.name}'s official files")
    else:
        return {TRAIN: [data]}
    splits = {}
    for split, patterns in names_of(task).items():
        matching = (_matching(files, pattern, data) for pattern in patterns)
        if path := next((path for path in matching if path), None):
            splits[split] = [path]
    if required and TRAIN not in splits:
        looked_for = ", ".join(names_of(task)[TRAIN])
        raise InputError(
            f"{data}: has no training file for {task.name}; looked for {looked_for}; name it with --train FILE"
        )
    return splits


def _matching(files: Mapping[str, str], pattern: str, data: str) -> str | None:
    matching = [name for name in sorted(files) if fnmatchcase(name.lower().removesuffix(".gz"), pattern)]
    if len(matching) > 1:
        raise InputError(f"{data}: both {' and '.join(matching)} exist; name one with --train, --eval or --test")
    return files[matching[0]] if matching else None


def _find_reviews(data: str) -> dict[str, list[str]]:
    """The folders `train` and `test`; without such folders all reviews are training data."""
    reviews = []
    if is_folder(data):
        reviews = [file.path[len(data) + 1 :] for file in files_below(data) if is_review(file.path)]
    if not reviews:
        raise InputError(f"{data}: has no reviews, pos/*.txt and neg/*.txt; --data takes the folder aclImdb")
    folders = sorted({name.rpartition("/")[0].rpartition("/")[0] for name in reviews})
    splits = {
        split: [f"{data}/{folder}" for folder in folders if folder.rpartition("/")[2] == split]
        for split in (TRAIN, TEST)
    }
    return {split: paths for split, paths in splits.items() if paths} or {TRAIN: [data]}


def _exists(path: str) -> bool:
    try:
        return FileSystems.exists(path) or is_folder(path)
    except (BeamIOError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
