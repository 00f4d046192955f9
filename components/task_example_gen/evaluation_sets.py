"""Reads evaluation sets in any format of `bert-tfx finetune`, for `corpus.decontaminate`.

The format is found by reading: a set has that of the first task of _TRIED whose reader takes more of its rows than it
refuses. RTE, WNLI and STS-B have MNLI's columns of texts, SQuAD 1.1 is read as 2.0. Labels do not matter: the texts of
refused rows count as well. Rows that cannot be read at all are counted, said and recorded.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Sequence
from typing import Any

from bert_keras.errors import InputError
from bert_keras.notices import notify
from bert_keras.tasks.table import TASKS
from components.corpus_gen.filters.leaks import EvaluationSet, make_table
from components.corpus_gen.inputs import list_files
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.words import words_of
from components.io.shards import write_by_content
from components.task_example_gen.readers import ReadReport, read_located
from components.task_example_gen.readers.imdb import read_imdb
from components.task_example_gen.readers.records import BadRow, LocatedRow, Note
from components.task_example_gen.settings import TaskDataSettings
from components.task_example_gen.task_files import is_folder, open_content

_OPTION = "corpus.decontaminate"
# The strict formats first: CoLA and AG News have no header.
_TRIED = (
    *("squad2.0", "swag", "mnli", "qqp", "qnli", "mrpc", "sst-2", "text-pair", "text", "rerank", "ner", "codah"),
    *("cola", "ag-news"),
)


def with_leak_table(settings: CorpusSettings, directory: str) -> CorpusSettings:
    """Write the table of the sets of `settings.decontaminate` to a file named by its content.

    Returns the settings for the workers, with the path of the table in place of any sets, so that other content gives
    other settings, which the cache does not know. Workers must be able to read the directory.
    """
    if not settings.decontaminate:
        return settings
    paths = _paths(settings.decontaminate)
    table = make_table(map(read_evaluation_set, paths, _short_names(paths)), settings.leaks)
    for path, one in zip(paths, table.sets, strict=True):
        if one["unread"]:
            notify(f"{_OPTION}: {path}: {one['unread']:,} row(s) cannot be read; documents with their texts stay")
    path = write_by_content(directory, "leaks-{}.npz", table.to_bytes())
    return dataclasses.replace(settings, decontaminate=(path,))


def read_evaluation_set(path: str, name: str) -> EvaluationSet:
    """Read the texts of a file, or of a folder of reviews (IMDb); InputError for any other format."""
    if _has_reviews(path):
        read = list(read_imdb(path))
        reviews = [str(review.row.inputs["text"]) for review in read if isinstance(review, LocatedRow)]
        return EvaluationSet(name, content_sha256(path), reviews, len(read) - len(reviews))
    digest = content_sha256(path)  # also refuses what cannot be read, by its reason
    for task in _TRIED:
        trial, rows_read = _Trial(), 0
        try:
            for located in read_located(TASKS[task], path, "skip", trial, TaskDataSettings().columns):
                rows_read += 1
                trial.texts += _texts(located.row.inputs)
        except InputError:
            continue
        if rows_read > trial.skipped[path]:
            return EvaluationSet(name, digest, trial.texts, trial.unread)
    raise InputError(
        f"{_OPTION}: {path} has no format of a task (docs/finetuning.md); give the official file, or a table with a "
        "column `text`"
    )


def content_sha256(path: str) -> str:
    """Hash of an evaluation set: of the decompressed content of a file, of the rows of reviews (IMDb)."""
    digest = hashlib.sha256()
    if _has_reviews(path):
        for review in read_imdb(path):
            if isinstance(review, LocatedRow):
                digest.update(f"{review.row.row_id}\0{review.row.inputs['text']}\0".encode())
        return digest.hexdigest()
    with open_content(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@dataclasses.dataclass
class _Trial(ReadReport):
    """Takes the texts of malformed rows without a word: most formats that are tried are not the file's."""

    texts: list[str] = dataclasses.field(default_factory=list)
    unread: int = 0  # number of rows without a readable text

    def note(self, path: str, note: Note) -> None:
        self.texts += _refused(note.record) or ()

    def bad_row(self, path: str, bad: BadRow, on_bad_row: str) -> None:
        self.skipped[path] += 1
        texts = _refused(bad.record)
        self.texts += texts or ()
        self.unread += texts is None


def _texts(value: Any) -> list[str]:
    """All strings in a value of JSON."""
    if isinstance(value, str):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [text for part in values for text in _texts(part)]


def _refused(record: Any) -> list[str] | None:
    """Texts of a row that a reader refused; None if it cannot be read."""
    if isinstance(record, bytes):
        try:
            line = record.decode()
            # The whole line, too, as a text may have a tab.
            record = json.loads(line) if line.startswith("{") else [*line.split("\t"), line]
        except (ValueError, RecursionError):
            return None
    # Shorter ones, such as ids and labels, are never looked for (`LeakSettings.min_words`).
    return None if record is None else [text for text in _texts(record) if len(words_of(text)) > 2]


def _has_reviews(path: str) -> bool:
    """Return whether `path` is a folder with reviews."""
    return is_folder(path) and next(iter(read_imdb(path)), None) is not None


def _paths(patterns: Sequence[str]) -> list[str]:
    """The sets: folders of reviews as they are given, else files."""
    paths: dict[str, None] = {}
    for pattern in patterns:
        of_pattern = [pattern] if _has_reviews(pattern) else [file.path for file in list_files([pattern], _OPTION)]
        paths |= dict.fromkeys(path.rstrip("/") for path in of_pattern)
    return list(paths)


def _short_names(paths: Sequence[str]) -> list[str]:
    """The last parts of the paths, as many as tell them apart: SST-2/dev.tsv, CoLA/dev.tsv."""
    names = (["/".join(path.split("/")[-parts:]) for path in paths] for parts in itertools.count(1))
    return next(short for short in names if len(set(short)) == len(paths))
