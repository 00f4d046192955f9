"""SQuAD's prediction files, in the format of google-research/bert's run_squad.py: JSON objects by question id."""

import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from bert_keras.errors import InputError
from bert_keras.files import read_json, replacing
from bert_keras.tasks.rows import TaskRow

PREDICTIONS = "predictions.json"
NULL_ODDS = "null_odds.json"
N_BEST = "nbest_predictions.json"


def write_by_id(file: TextIO, rows: Sequence[TaskRow], values: Sequence[Any]) -> None:
    """Write {id: value}, in the order of the rows."""
    fields = {row.row_id: value for row, value in zip(rows, values, strict=True)}
    file.write(json.dumps(fields, indent=4, allow_nan=False) + "\n")


def write_details(
    rows: Sequence[TaskRow],
    directory: str,
    n_best: Sequence[list[dict[str, Any]]],
    null_odds: Sequence[float] | None = None,
) -> None:
    """Write `nbest_predictions.json` and, if there are null odds (SQuAD 2.0), `null_odds.json`."""
    for name, values in ((N_BEST, n_best), (NULL_ODDS, null_odds)):
        if values is not None:
            with replacing(os.path.join(directory, name)) as temporary, open(temporary, "w", encoding="utf-8") as file:
                write_by_id(file, rows, values)


def read_texts(rows: Sequence[TaskRow], path: str) -> list[str | None]:
    """Read one text per question, None if the file has none; unknown ids are ignored."""
    return _values(rows, path, "a text", lambda value: isinstance(value, str))


def read_null_odds(rows: Sequence[TaskRow], answers: Sequence[str | None], path: str) -> list[float | None]:
    """Read one number per question, None if neither the file nor the answers have one."""
    odds = _values(rows, path, "a number", lambda odd: type(odd) in (int, float) and math.isfinite(odd))
    for row, answer, value in zip(rows, answers, odds, strict=True):
        if answer is not None and value is None:
            raise InputError(f"{path}: {row.row_id} is missing, but has a prediction; give the odds of the same run")
    return odds


def _values(rows: Sequence[TaskRow], path: str, wanted: str, fits: Callable[[Any], bool]) -> list[Any]:
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file")
    fields = read_json(path)
    values = [fields.get(row.row_id) for row in rows]
    for row, value in zip(rows, values, strict=True):
        if row.row_id in fields and not fits(value):
            raise InputError(f"{path}: {row.row_id}: {json.dumps(value)[:80]} is not {wanted}")
    if rows and not any(row.row_id in fields for row in rows):
        raise InputError(
            f"{path}: none of its {len(fields)} ids is a question of the data (the first is {rows[0].row_id})"
        )
    return values
