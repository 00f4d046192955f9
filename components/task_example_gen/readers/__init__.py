"""Readers of a task's official files, one module per format, with an example at the top of each module."""

import dataclasses
import json
from collections.abc import Iterator

from bert_keras.errors import InputError
from bert_keras.notices import notify
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import Task
from components.task_example_gen.readers.choices import read_codah, read_swag
from components.task_example_gen.readers.conll import read_conll
from components.task_example_gen.readers.glue import read_glue
from components.task_example_gen.readers.imdb import read_imdb
from components.task_example_gen.readers.records import BadRow, LocatedRow, Note, ReadReport, ReadRows
from components.task_example_gen.readers.squad import read_squad
from components.task_example_gen.readers.table import read_table
from components.task_example_gen.settings import Columns, OnBadRow, TaskDataSettings
from components.task_example_gen.task_files import open_content

__all__ = ["LocatedRow", "ReadReport", "read_located", "read_rows"]


def read_rows(
    task: Task, path: str, on_bad_row: OnBadRow | None = None, columns: Columns | None = None, labelled: bool = False
) -> Iterator[TaskRow]:
    """Rows of a task's file, compressed or not (gzip, bzip2, xz, zstd), in its order; for IMDb of a folder.

    `on_bad_row`: "fail" at a malformed row, or "skip" it and log the first ones of each file; None: the setting's.
    `labelled`: whether rows without label are malformed. InputError names file, line and remedy.
    """
    settings, report = TaskDataSettings(), ReadReport()
    on_bad_row, columns = on_bad_row or settings.on_bad_row, columns or settings.columns
    for located in read_located(task, path, on_bad_row, report, columns, labelled):
        yield located.row
    for line in report.lines():
        notify(line)


def read_located(
    task: Task, path: str, on_bad_row: OnBadRow, report: ReadReport, columns: Columns, labelled: bool = False
) -> Iterator[LocatedRow]:
    """Rows as in `read_rows`, with their locations and groups; malformed rows and notes are counted in `report`."""
    for located in _read(task, path, columns, labelled):
        if isinstance(located, Note):
            report.note(path, located)
            continue
        if isinstance(located, LocatedRow) and task.kind == "classification" and located.row.gold:
            label = located.row.gold.strip()
            report.notes[path, "labels read without the blanks around them"] += label != located.row.gold
            located = dataclasses.replace(located, row=dataclasses.replace(located.row, gold=label))
        why = located.why if isinstance(located, BadRow) else _problem(task, located.row, labelled)
        if why:
            bad = located if isinstance(located, BadRow) else BadRow(located.where, why, located.row.inputs)
            report.bad_row(path, bad, on_bad_row)
        else:
            assert isinstance(located, LocatedRow)
            yield located


def _read(task: Task, path: str, columns: Columns, labelled: bool) -> ReadRows:
    if task.reader == "imdb":
        yield from read_imdb(path)
        return
    with open_content(path) as file:
        if task.reader == "glue":
            yield from read_glue(task, file, path, labelled)
        elif task.reader in ("table", "sentences", "queries"):
            yield from read_table(task, file, path, columns, labelled)
        elif task.reader == "swag":
            yield from read_swag(file, path, labelled)
        elif task.reader == "codah":
            yield from read_codah(file)
        elif task.reader == "squad":
            yield from read_squad(task, file, path)
        elif task.reader == "conll":
            yield from read_conll(file)
        else:
            raise InputError(f"{task.name}: no reader {task.reader}")


def _problem(task: Task, row: TaskRow, labelled: bool) -> str:
    """Reason why a row cannot be used, in any format; "" if it can."""
    gold = row.gold if isinstance(row.gold, str) else json.dumps(row.gold, ensure_ascii=False)
    try:
        "".join((row.row_id, gold, *("".join(value) for value in row.inputs.values()))).encode()
    except UnicodeEncodeError:  # JSON's escapes, names of files
        return "its text, label or name has half of a surrogate pair or a byte that is not UTF-8"
    if row.gold is None and not (labelled and task.contrastive):
        # Every row of a test set needs a prediction, even an empty text.
        return "has no label, which training and eval rows need" if labelled else ""
    for name, value in row.inputs.items():
        if not all(text.strip() for text in ((value,) if isinstance(value, str) else value)):
            return f"{name} is empty"
    if task.kind == "regression" and not task.label_from <= row.gold <= task.label_to:
        return f"{row.gold:g} is not in [{task.label_from:g}, {task.label_to:g}]"
    if task.kind == "multiple_choice" and not 0 <= row.gold < len(row.inputs["choices"]):
        return f"choice {row.gold} is not in 0 to {len(row.inputs['choices']) - 1}"
    if task.kind == "classification" and not row.gold:
        return "the label is empty"
    golds = row.gold if task.kind in ("tagging", "multi_label") else [row.gold]
    if task.labels and task.has_labels:
        for gold in golds:
            if gold not in task.labels:
                return f"label {gold!r} is not one of {', '.join(task.labels)}"
    return ""
