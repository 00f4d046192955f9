"""`bert-tfx score`: the official scores of a prediction file, without a model and without TensorFlow."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from bert_keras.errors import InputError

if TYPE_CHECKING:
    from bert_keras.tasks.rows import TaskRow
    from bert_keras.tasks.table import Task


def score(
    task: Annotated[str, typer.Argument(metavar="TASK", help="squad1.1, squad2.0, ner, sst-2, mnli, swag, text, ...")],
    gold: Annotated[str, typer.Argument(metavar="GOLD", help="The labelled data: the task's official file.")],
    predictions: Annotated[
        str, typer.Argument(metavar="PREDICTIONS", help="The predictions: the task's official submission file.")
    ],
    null_odds: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Of squad2.0: null_odds.json; then the best thresholds are told too."),
    ] = None,
) -> None:
    """The official scores of a prediction file, as one JSON object with the official metrics' names.

    SQuAD's are percent, all others fractions; tags are compared as IOB2. What has no value (the correlation with
    constant predictions) is null. PREDICTIONS is for GLUE and other labels a TSV `index<TAB>prediction`; for SQuAD JSON
    {id: text}; for tagging columns, the word first and the prediction last; for SWAG and CODAH a CSV with the header
    `,pred`.
    """
    from bert_keras.tasks.predictions import read_predictions
    from bert_keras.tasks.scores import score as scores_of
    from bert_keras.tasks.squad_predictions import read_null_odds
    from bert_keras.tasks.table import task_of

    row = task_of(task)
    if null_odds is not None and not row.unanswerable:
        raise InputError(f"--null-odds {null_odds}: {row.name} has an answer to every question; leave it out")
    rows = _labelled_rows(row, gold)
    answers = read_predictions(row, rows, predictions)
    odds = None if null_odds is None else read_null_odds(rows, answers, null_odds)
    missing = answers.count(None)
    if missing:
        treated = "left out" if row.unanswerable else "wrong"
        typer.echo(
            f"bert-tfx: {predictions}: no prediction for {missing} of {len(rows)}: counted as {treated}", err=True
        )
    figures = scores_of(row, [given.gold for given in rows], answers, odds)
    # JSON has no nan.
    typer.echo(json.dumps({name: None if math.isnan(value) else value for name, value in figures.items()}))


def _labelled_rows(task: Task, gold: str) -> list[TaskRow]:
    from components.task_example_gen.readers import read_rows

    rows = list(read_rows(task, gold))
    unlabelled = [row.row_id for row in rows if row.gold is None]
    if unlabelled or not rows:
        what = f"row {unlabelled[0]} has no label" if unlabelled else "holds no rows"
        raise InputError(f"{gold}: {what}; GOLD is a file of labelled rows")
    return rows
