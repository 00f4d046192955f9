"""Tables of the report: metrics of slices, confused labels, a hyper-parameter search, restarts."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pipeline.report.score_format import ScoreForm
from pipeline.summaries.task import BATCH, EPOCHS, RATE

# With more labels the most frequent mistakes are listed in place of the matrix.
MAX_LABELS = 12
PAIRS_SHOWN = 20


class Table(NamedTuple):
    """A table of texts, a title for each column."""

    caption: str
    titles: list[str]
    rows: list[list[str]]


class Confusion(NamedTuple):
    """A confusion matrix: for each true label the numbers of rows by predicted label, and in all.

    With too many labels it has the most frequent mistakes instead: `pairs` of labels and their number of rows.
    """

    labels: list[str]
    lines: list[tuple[str, list[int], int]]
    pairs: list[tuple[str, str, int]]


def confusion(labels: Sequence[str], golds: Sequence[str], answers: Sequence[str]) -> Confusion:
    """Count pairs of true and predicted labels."""
    counts = Counter(zip(golds, answers, strict=True))
    if len(labels) > MAX_LABELS:
        order = {label: number for number, label in enumerate(labels)}
        wrong = [(gold, answer, n) for (gold, answer), n in counts.items() if gold != answer]
        wrong.sort(key=lambda pair: (-pair[2], order[pair[0]], order[pair[1]]))
        return Confusion([], [], wrong[:PAIRS_SHOWN])
    rows = {gold: [counts[gold, answer] for answer in labels] for gold in labels}
    return Confusion(list(labels), [(gold, row, sum(row)) for gold, row in rows.items()], [])


class Column(NamedTuple):
    """A metric: its title, and the format of its values."""

    title: str
    number: Callable[[float], str]


def slice_table(summary: Mapping[str, Any], counted: str, lengths: str, columns: Mapping[str, Column]) -> Table:
    """A row for each slice of a run: name, number of `counted`, metrics; `lengths` says the unit of their lengths."""
    titles = ["Part", counted, *(column.title for column in columns.values())]
    rows = []
    for part in summary["slices"]:
        cells = [_cell(column, part["metrics"][name], part["intervals"].get(name)) for name, column in columns.items()]
        rows.append([f"{part['by']} {part['of']}", f"{part['metrics']['example_count']:,.0f}", *cells])
    return Table(f"{lengths} In brackets the 95 % confidence interval.", titles, rows)


def _cell(column: Column, value: float, interval: Sequence[float] | None) -> str:
    """Format a value and its interval: 46.1 (44.0 to 48.2)."""
    ends = "" if interval is None else f" ({' to '.join(map(column.number, interval))})"
    return column.number(value) + ends


def search_table(search: Mapping[str, Any], form: ScoreForm) -> Table:
    """The trainings of a search (`bert_keras.finetuning.search`), the best first, which the caption describes."""
    trainings, best = search["trainings"], search["best"]
    ranking = sorted(trainings, key=lambda t: math.inf if t["score"] is None or math.isnan(t["score"]) else -t["score"])
    caption = (
        f"{form.title} {form.number(best['score'])}, the best of {len(trainings)}: batch {best[BATCH]}, "
        f"learning rate {best[RATE]:g}, {epochs(best[EPOCHS])}."
    )
    rows = [[str(t[BATCH]), f"{t[RATE]:g}", f"{t[EPOCHS]:g}", form.number(t["score"])] for t in ranking]
    return Table(caption, ["Batch", "Learning rate", "Epochs", "Score"], rows)


def epochs(number: float) -> str:
    """Format a number of epochs: 3.0 -> 3 epochs."""
    return f"{number:g} epoch{'s' * (number != 1)}"


class Restarts(NamedTuple):
    """Scores by model (a seed, or the ensemble), whether it is chosen; mean and deviation of the main score."""

    titles: list[str]
    rows: list[tuple[str, bool, list[str]]]
    mean: str


def restarts(report: Mapping[str, Any], forms: Mapping[str, ScoreForm]) -> Restarts | None:
    """The table of the restarts (`bert_keras.finetuning.restarts`); None for a single training.

    `forms` are those of the task's scores by name; the first is the main score.
    """
    scores = dict(sorted(report["scores"].items(), key=lambda item: int(item[0])))
    if len(scores) < 2:
        return None
    form, chosen = forms[report["metric"]], {str(seed) for seed in report["chosen"]}
    models = [(f"seed {seed}", seed in chosen, of_seed) for seed, of_seed in scores.items()]
    if report["ensemble"]:
        models.append(("ensemble", True, report["ensemble"]))
    rows = [(name, taken, [f.number(numbers[key]) for key, f in forms.items()]) for name, taken, numbers in models]
    mean, deviation = (math.nan if value is None else value for value in (report["mean"], report["deviation"]))
    spread = "" if math.isnan(deviation) else f" ± {form.difference(deviation).removeprefix('+')}"
    missing = [f"seed {seed}" for seed, of_seed in scores.items() if of_seed[report["metric"]] is None]
    without = f" without {', '.join(missing)}" if missing else ""
    return Restarts([form.title for form in forms.values()], rows, f"{form.title} {form.number(mean)}{spread}{without}")
