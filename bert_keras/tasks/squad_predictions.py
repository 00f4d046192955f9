"""SQuAD's prediction files, as google-research/bert's run_squad writes them: JSON objects by the question's id."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from bert_keras.errors import InputError
from bert_keras.interchange.files import staged
from bert_keras.tasks.rows import TaskRow

PREDICTIONS = "predictions.json"
NULL_ODDS = "null_odds.json"
N_BEST = "nbest_predictions.json"


def write_by_id(file: TextIO, rows: Sequence[TaskRow], values: Sequence[Any]) -> None:
    """Writes {id: value}, in the order of the rows."""
    fields = {row.row_id: value for row, value in zip(rows, values, strict=True)}
    file.write(json.dumps(fields, indent=4, allow_nan=False) + "\n")


def write_details(
    rows: Sequence[TaskRow],
    directory: str,
    n_best: Sequence[list[dict[str, Any]]],
    null_odds: Sequence[float] | None = None,
) -> None:
    """Writes `nbest_predictions.json` and, where there are null odds, `null_odds.json`.

    Args:
        rows: the questions.
        directory: where the files go.
        n_best: a question's best answers, the best first: `text`, `probability`, `start_logit`, `end_logit` each.
        null_odds: of SQuAD 2.0: the score of no answer less that of the best one, a question.
    """
    with staged(directory) as staging:
        for name, values in ((N_BEST, n_best), (NULL_ODDS, null_odds)):
            if values is not None:
                with open(os.path.join(staging, name), "w", encoding="utf-8") as file:
                    write_by_id(file, rows, values)


def read_texts(rows: Sequence[TaskRow], path: str) -> list[str | None]:
    """A text a question, None where the file has none; ids that no question has are passed over.

    Raises:
        InputError: not a JSON object of texts, or of other questions altogether.
    """
    return _values(rows, path, "a text", lambda value: isinstance(value, str))


def read_null_odds(rows: Sequence[TaskRow], answers: Sequence[str | None], path: str) -> list[float | None]:
    """A number a question, None where neither the file nor the answers have one.

    Raises:
        InputError: not a JSON object of numbers, of other questions altogether, or an answer without its odds.
    """
    odds = _values(rows, path, "a number", _is_number)
    for row, answer, value in zip(rows, answers, odds, strict=True):
        if answer is not None and value is None:
            raise InputError(f"{path}: {row.row_id} is not there, and has a prediction; give the odds of the same run")
    return odds


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _values(rows: Sequence[TaskRow], path: str, wanted: str, fits: Callable[[Any], bool]) -> list[Any]:
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file")
    with open(path, encoding="utf-8-sig") as file:
        try:
            fields = json.load(file)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: is not UTF-8 ({error}); write it again") from error
    if not isinstance(fields, dict):
        raise InputError(f"{path}: holds a {type(fields).__name__}, not an object of ids and {wanted} each")
    values = [fields.get(row.row_id) for row in rows]
    for row, value in zip(rows, values, strict=True):
        if row.row_id in fields and not fits(value):
            raise InputError(f"{path}: {row.row_id}: {json.dumps(value)[:80]} is not {wanted}")
    if rows and not any(row.row_id in fields for row in rows):
        raise InputError(
            f"{path}: none of its {len(fields)} ids is a question of the data (the first is {rows[0].row_id})"
        )
    return values
