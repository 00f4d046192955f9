"""`bert-tfx score`: official scores of a prediction file, without a model and without TensorFlow."""

from collections.abc import Sequence
from typing import Annotated

import typer

from bert_keras.errors import InputError
from bert_keras.files import json_text
from bert_keras.notices import notify


def score(
    task: Annotated[str, typer.Argument(metavar="TASK", help="squad1.1, squad2.0, ner, sst-2, mnli, swag, text, ...")],
    gold: Annotated[str, typer.Argument(metavar="GOLD", help="The labelled data: the task's official file.")],
    predictions: Annotated[
        str, typer.Argument(metavar="PREDICTIONS", help="The predictions: the task's official submission file.")
    ],
    null_odds: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="For squad2.0: null_odds.json; adds the best thresholds to the output."),
    ] = None,
) -> None:
    """Print the official scores of a prediction file as JSON.

    SQuAD's scores are in per cent, all others fractions; an undefined score is null. PREDICTIONS: for labels a TSV
    `index<TAB>prediction`; for SQuAD JSON {id: text}; for tags columns, the word first and the prediction last; for
    SWAG and CODAH a CSV with the header `,pred`.
    """
    from bert_keras.tasks.metrics.scores import score as scores_of
    from bert_keras.tasks.submissions.prediction_files import read_predictions
    from bert_keras.tasks.submissions.squad import read_null_odds
    from bert_keras.tasks.table import task_of
    from components.task_example_gen.readers import read_rows

    row = task_of(task)
    if null_odds is not None and not row.unanswerable:
        raise InputError(f"--null-odds {null_odds}: not applicable, every question of {row.name} has an answer")
    rows = list(read_rows(row, gold, labelled=True))
    unlabelled = [labelled.row_id for labelled in rows if labelled.gold is None]
    if unlabelled or not rows:
        problem = f"row {unlabelled[0]} has no label" if unlabelled else "has no rows"
        raise InputError(f"{gold}: {problem}; GOLD is a file of labelled rows")
    answers = read_predictions(row, rows, predictions)
    odds = None if null_odds is None else read_null_odds(rows, answers, null_odds)
    if row.kind == "classification" and not row.labels:
        labels = {labelled.gold for labelled in rows}
        if unknown := sorted({*answers} - labels):
            count = sum(map(answers.count, unknown))
            notify(
                f"{predictions}: {count} of {len(rows)} count as wrong, as {gold} has no label {_some(unknown)}, only "
                f"{_some(sorted(labels))}"
            )
    if missing := answers.count(None):
        treatment = "left out" if row.unanswerable else "wrong"
        typer.echo(
            f"bert-tfx: {predictions}: no prediction for {missing} of {len(rows)}: counted as {treatment}", err=True
        )
    typer.echo(json_text(scores_of(row, [labelled.gold for labelled in rows], answers, odds)))


def _some(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels[:5])) + ", ..." * (len(labels) > 5)
