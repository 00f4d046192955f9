"""Prediction files in the official submission formats, written for submission and read for scoring.

    tasks         file                                    contents
    GLUE          CoLA.tsv, MNLI-m.tsv, MNLI-mm.tsv, ...  index TAB prediction, with a header of these names: the
                                                          label's name; for STS-B 3.812
    other labels  predictions.tsv                         the same
    multi_label   predictions.tsv                         likewise, of the labels: joy|surprise, or nothing
    retrieval     predictions.tsv                         likewise, of the ten nearest texts as JSON, the nearest first
    SWAG, CODAH   predictions.csv                         0,2 under the header `,pred` (its authors' csv_predict.py)
    SQuAD         predictions.json, null_odds.json,       {id: text}, {id: odds}, {id: [answers with scores]}
                  nbest_predictions.json                  (google-research/bert's run_squad.py)
    tagging       predictions.txt                         word gold predicted, as conlleval reads; a blank line ends a
                                                          sentence; no gold column without golds

Writes are atomic. All files are UTF-8, on a local file system (no gs://).
"""

import csv
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from bert_keras.errors import InputError
from bert_keras.files import replacing
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.submissions.conll import read_tags, write_tags
from bert_keras.tasks.submissions.squad import PREDICTIONS, read_texts, write_by_id
from bert_keras.tasks.table import SEPARATOR, Task

# File names required by gluebenchmark.com.
GLUE_FILES = {name: f"{name.upper()}.tsv" for name in ("mrpc", "qnli", "qqp", "rte", "sst-2", "sts-b", "wnli")}
GLUE_FILES["cola"] = "CoLA.tsv"
_KIND_FILES = {"multiple_choice": "predictions.csv", "span": PREDICTIONS, "tagging": "predictions.txt"}
_DELIMITERS = {"multiple_choice": ","}
_HEADERS = {"multiple_choice": ["", "pred"]}
_TABLE_HEADER = ["index", "prediction"]


def official_name(task: Task, split: str = "test") -> str:
    """The name of a task's prediction file; for MNLI it depends on the split (matched or mismatched)."""
    if task.name == "mnli":
        return "MNLI-mm.tsv" if split.endswith("mismatched") else "MNLI-m.tsv"
    return GLUE_FILES.get(task.name) or _KIND_FILES.get(task.kind, "predictions.tsv")


def write_predictions(task: Task, rows: Sequence[TaskRow], answers: Sequence[Any], path: str) -> None:
    """Write the answers to rows, in order; numbers are clipped to the task's range and have three decimals."""
    if len(rows) != len(answers):
        raise ValueError(f"{len(rows)} rows and {len(answers)} answers")
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        if task.kind == "span":
            write_by_id(file, rows, answers)
        elif task.kind == "tagging":
            write_tags(file, rows, answers)
        else:
            _write_table(task, file, rows, answers)


def read_predictions(task: Task, rows: Sequence[TaskRow], path: str) -> list[Any]:
    """Read the answers to rows, in order, in the form of `TaskRow.gold`; for spans None for a missing id.

    InputError: the file does not fit the rows; names file, line (JSON: id) and the reason.
    """
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file")
    try:
        if task.kind == "span":
            return read_texts(rows, path)
        if task.kind == "tagging":
            return read_tags(rows, path)
        return _read_table(task, rows, path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be parsed ({error}); write it again") from error


def read_written(task: Task, rows: Sequence[TaskRow], path: str) -> list[Any]:
    """Read a file that `write_predictions` wrote for these rows, by order: rows of several files may share ids."""
    if task.kind in ("span", "tagging"):
        return read_predictions(task, rows, path)
    cells = list(_cells(task, path))
    if len(cells) != len(rows):
        raise InputError(f"{path}: {len(cells)} predictions; the data have {len(rows)} rows")
    parse = _parser(task)
    return [parse(text, row) for row, (_, _, text) in zip(rows, cells, strict=True)]


def _write_table(task: Task, file: TextIO, rows: Sequence[TaskRow], answers: Sequence[Any]) -> None:
    writer = csv.writer(file, delimiter=_DELIMITERS.get(task.kind, "\t"), lineterminator="\n")
    writer.writerow(_HEADERS.get(task.kind, _TABLE_HEADER))
    for row, answer in zip(rows, answers, strict=True):
        if task.kind == "regression":
            answer = f"{min(max(answer, task.label_from), task.label_to):.3f}"
        elif task.kind == "multi_label":
            answer = SEPARATOR.join(answer)
        writer.writerow([row.row_id, json.dumps(answer, ensure_ascii=False) if task.kind == "retrieval" else answer])


def _read_table(task: Task, rows: Sequence[TaskRow], path: str) -> list[Any]:
    parse, place = _parser(task), {row.row_id: number for number, row in enumerate(rows)}
    if len(place) < len(rows):
        raise InputError(
            f"{path}: two of the {len(rows)} rows to score have the same id, so predictions cannot be matched"
        )
    answers: dict[int, Any] = {}
    for line, row_id, text in _cells(task, path):
        number = place.get(row_id)
        if number is None:
            raise InputError(f"{path}:{line}: no row of the data has the index {row_id!r}")
        if number in answers:
            raise InputError(f"{path}:{line}: the index {row_id!r} occurs twice; give one prediction per row")
        try:
            answers[number] = parse(text, rows[number])
        except ValueError as error:
            raise InputError(f"{path}:{line}: {text!r} is not {error}") from None
    missing = [row.row_id for number, row in enumerate(rows) if number not in answers]
    if missing:
        raise InputError(
            f"{path}: no prediction for {len(missing)} of {len(rows)} rows, the first is index {missing[0]!r}"
        )
    return [answers[number] for number in range(len(rows))]


def _cells(task: Task, path: str) -> Iterator[tuple[int, str, str]]:
    """Line (from 1), index and prediction of each row after the header."""
    delimiter, header = _DELIMITERS.get(task.kind, "\t"), _HEADERS.get(task.kind, _TABLE_HEADER)
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        if next(reader, None) != header:
            raise InputError(f"{path}:1: the header must be {delimiter.join(header)!r}")
        for cells in reader:
            if len(cells) == 2:
                yield reader.line_num, cells[0], cells[1]
            elif cells:
                raise InputError(
                    f"{path}:{reader.line_num}: has {len(cells)} columns; expected an index and a prediction"
                )


def _parser(task: Task) -> Callable[[str, TaskRow], Any]:
    """A parser of cells; its ValueError names the expected value."""

    def label(text: str, row: TaskRow) -> str:
        text = text.strip()
        if not text or (task.labels and text not in task.labels):
            raise ValueError(f"a label; labels are {', '.join(task.labels)}" if task.labels else "a label")
        return text

    def labels(text: str, row: TaskRow) -> list[str]:
        return [label(name, row) for name in text.split(SEPARATOR)] if text else []

    def number(text: str, row: TaskRow) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError("a number")
        return value

    def choice(text: str, row: TaskRow) -> int:
        choices = len(row.inputs["choices"])
        if not text.isdecimal() or int(text) >= choices:
            raise ValueError(f"a choice from 0 to {choices - 1}")
        return int(text)

    def texts(text: str, row: TaskRow) -> list[str]:
        value = json.loads(text) if text.startswith("[") else None
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise ValueError("a JSON list of texts")
        return value

    parsers: dict[str, Callable[[str, TaskRow], Any]] = dict.fromkeys(("regression", "ranking", "similarity"), number)
    parsers |= {"multiple_choice": choice, "retrieval": texts, "multi_label": labels}
    return parsers.get(task.kind, label)
