"""Reads evaluation sets in any format of `bert-tfx finetune`, for `corpus.decontaminate`.

The format is found by reading: a set has that of the first task of _TRIED whose reader takes more of its rows than it
refuses. RTE, WNLI and STS-B have MNLI's columns of texts, SQuAD 1.1 is read as 2.0.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Sequence

from bert_keras.errors import InputError
from bert_keras.tasks.table import TASKS
from components.corpus_gen.filters.leaks import EvaluationSet, make_table
from components.corpus_gen.inputs import list_files
from components.corpus_gen.settings import CorpusSettings
from components.io.shards import write_by_content
from components.task_example_gen.archives import MEMBER, is_archive, is_folder, open_member, split_member
from components.task_example_gen.readers import ReadReport, read_found
from components.task_example_gen.readers.imdb import read_imdb
from components.task_example_gen.readers.records import BadRow, Found
from components.task_example_gen.settings import TaskDataSettings

_OPTION = "corpus.decontaminate"
# The strict formats first: CoLA and AG News have no header.
_TRIED = (
    *("squad2.0", "swag", "mnli", "qqp", "qnli", "mrpc", "sst-2", "text-pair", "text", "ner", "codah"),
    *("cola", "ag-news"),
)


def with_leak_table(settings: CorpusSettings, directory: str) -> CorpusSettings:
    """Write the table of the sets of `settings.decontaminate` to a file named by its content.

    Returns the settings for the workers, with the path of the table in place of the sets, so that other content gives
    other settings, which the cache does not know. Unchanged without sets. Workers must be able to read the directory.

    Raises:
        InputError: a pattern matches nothing, or a file has no format of a task; names it.
    """
    if not settings.decontaminate:
        return settings
    paths = _paths(settings.decontaminate)
    table = make_table(map(read_evaluation_set, paths, _short_names(paths)), settings.leaks)
    path = write_by_content(directory, "leaks-{}.npz", table.to_bytes())
    return dataclasses.replace(settings, decontaminate=(path,))


def read_evaluation_set(path: str, name: str) -> EvaluationSet:
    """Read the texts of a file, a member of an archive, or a folder or archive of reviews (IMDb).

    Raises:
        InputError: it has no format of a task; names it.
    """
    if _has_reviews(path):
        rows = [found.row for found in read_imdb(path) if isinstance(found, Found)]
        return EvaluationSet(name, content_sha256(path), [str(row.inputs["text"]) for row in rows])
    digest = content_sha256(path)  # also refuses what cannot be read, by its reason
    for task in _TRIED:
        trial = _Trial()
        texts: list[str] = []
        rows_read = 0
        try:
            for found in read_found(TASKS[task], path, "skip", trial, TaskDataSettings().columns):
                rows_read += 1
                for value in found.row.inputs.values():
                    texts += (value,) if isinstance(value, str) else value
        except InputError:
            continue
        if rows_read > trial.skipped[path]:
            return EvaluationSet(name, digest, texts)
    raise InputError(
        f"{_OPTION}: {path} has no format of a task (docs/finetuning.md); give the official file, or a table with a "
        "column `text`"
    )


def content_sha256(path: str) -> str:
    """Hash of an evaluation set: of the decompressed content of a file, of the rows of reviews (IMDb)."""
    digest = hashlib.sha256()
    if _has_reviews(path):
        for found in read_imdb(path):
            if isinstance(found, Found):
                digest.update(f"{found.row.row_id}\0{found.row.inputs['text']}\0".encode())
        return digest.hexdigest()
    with open_member(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


class _Trial(ReadReport):
    """Counts malformed rows without a word: most formats that are tried are not the file's."""

    def bad_row(self, path: str, bad: BadRow, on_bad_row: str) -> None:
        self.skipped[path] += 1


def _has_reviews(path: str) -> bool:
    """Whether `path` is a folder or an archive, or a folder of an archive, with reviews."""
    container, _ = split_member(path)
    return (is_folder(container) or is_archive(container)) and next(iter(read_imdb(path)), None) is not None


def _paths(patterns: Sequence[str]) -> list[str]:
    """The sets: folders and archives of reviews and members of archives as they are given, else files."""
    found: dict[str, None] = {}
    for pattern in patterns:
        whole = MEMBER in pattern or (is_folder(pattern) and _has_reviews(pattern))
        found.update(dict.fromkeys([pattern] if whole else [file.path for file in list_files([pattern], _OPTION)]))
    return list(found)


def _short_names(paths: Sequence[str]) -> Iterator[str]:
    """The last parts of the paths, as many as tell them apart: SST-2/dev.tsv, CoLA/dev.tsv."""
    for parts in itertools.count(1):
        names = ["/".join(path.rstrip("/").split("/")[-parts:]) for path in paths]
        if len(set(names)) == len(paths):
            return iter(names)
    raise AssertionError
