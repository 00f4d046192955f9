"""A task's official files -> rows, one module a format; each format with an example at the top of its module."""

from __future__ import annotations

from collections.abc import Iterator

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import Task
from components.task_example_gen.readers.choices import read_codah, read_swag
from components.task_example_gen.readers.conll import read_conll
from components.task_example_gen.readers.found import BadRow, Found, Note, ReadReport
from components.task_example_gen.readers.glue import read_glue
from components.task_example_gen.readers.imdb import read_imdb
from components.task_example_gen.readers.squad import read_squad
from components.task_example_gen.readers.table import read_table
from components.task_example_gen.settings import Columns, OnBadRow, TaskDataSettings
from components.task_example_gen.sources import opened

__all__ = ["Found", "ReadReport", "read_found", "read_rows"]


def read_rows(
    task: Task, path: str, on_bad_row: OnBadRow | None = None, columns: Columns | None = None
) -> Iterator[TaskRow]:
    """The rows of a task's file, in its order.

    Args:
        task: labels of rows must be among its labels, if it has any.
        path: a file, compressed or not (gzip, bzip2, xz, zstd); a file of an archive, as `glue.zip!CoLA/train.tsv`; of
            IMDb a folder or an archive.
        on_bad_row: "fail" at a row that is not as it should be, or "skip" it: the first of each file are logged. None:
            as the settings have it.
        columns: of one's own tables.

    Raises:
        InputError: the file cannot be read or is of another format; a bad row (with "fail"). Names file, line, remedy.
    """
    settings = TaskDataSettings()
    found = read_found(task, path, on_bad_row or settings.on_bad_row, ReadReport(), columns or settings.columns)
    return (one.row for one in found)


def read_found(
    task: Task, path: str, on_bad_row: OnBadRow, report: ReadReport, columns: Columns, labelled: bool = False
) -> Iterator[Found]:
    """As `read_rows`, with where each row was found and its group.

    Args:
        report: bad rows and notes are counted in it.
        labelled: a row without label is a bad one.
    """
    for found in _read(task, path, columns):
        if isinstance(found, Note):
            report.notes[path, found.text] += 1
            continue
        why = found.why if isinstance(found, BadRow) else _what_is_wrong(task, found.row, labelled)
        if why:
            report.bad_row(path, BadRow(found.where, why), on_bad_row)
        else:
            assert isinstance(found, Found)
            yield found


def _read(task: Task, path: str, columns: Columns) -> Iterator[Found | BadRow | Note]:
    if task.reader == "imdb":
        yield from read_imdb(path)
        return
    with opened(path) as file:
        if task.reader == "glue":
            yield from read_glue(task, file, path)
        elif task.reader == "table":
            yield from read_table(task, file, path, columns)
        elif task.reader == "swag":
            yield from read_swag(file, path)
        elif task.reader == "codah":
            yield from read_codah(file)
        elif task.reader == "squad":
            yield from read_squad(task, file, path)
        elif task.reader == "conll":
            yield from read_conll(file)
        else:
            raise InputError(f"{task.name}: no reader {task.reader}")


def _what_is_wrong(task: Task, row: TaskRow, labelled: bool) -> str:
    """Why a row cannot be used, whatever its format; nothing if it can."""
    if row.gold is None:
        # Every row of a test set needs an answer, be it empty.
        return "has no label, which rows to train and evaluate on need" if labelled else ""
    for name, value in row.inputs.items():
        if not all(text.strip() for text in ((value,) if isinstance(value, str) else value)):
            return f"{name} is empty"
    if task.kind == "regression" and not task.label_from <= row.gold <= task.label_to:
        return f"{row.gold:g} is not in [{task.label_from:g}, {task.label_to:g}]"
    if task.kind == "multiple_choice" and not 0 <= row.gold < len(row.inputs["choices"]):
        return f"choice {row.gold} is not in 0 to {len(row.inputs['choices']) - 1}"
    if task.kind == "classification" and not row.gold:
        return "the label is empty"
    golds = row.gold if task.kind == "tagging" else [row.gold]
    if task.labels and task.kind in ("classification", "tagging"):
        for gold in golds:
            if gold not in task.labels:
                return f"label {gold!r} is not one of {', '.join(task.labels)}"
    return ""
