"""An experiment's figures as a page: the paper's table with ours beside it, and what it says, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.ablations.experiment import Arm, Column, Experiment
from pipeline.ablations.orders import STANDARD_ERRORS, Summary, sentences
from pipeline.ablations.run import Figures


def cell(values: list[float] | None) -> str:
    """Mean and deviation over seeds; empty where nothing was run.

    >>> cell([50.0, 52.0]), cell([50.0]), cell(None)
    ('51.0 ± 1.4', '50.0', '')
    """
    if not values:
        return ""
    summary = Summary.of(values)
    return f"{summary.mean:.1f}" + (f" ± {summary.deviation:.1f}" if summary.deviation is not None else "")


def page(experiment: Experiment, figures: Figures, about: Mapping[str, str], picture: str) -> str:
    """The page.

    Args:
        about: what it was run with, by name: a line each.
        picture: the picture's file, beside the page's.
    """
    columns = experiment.columns
    missing = [
        column.header
        for column in columns
        if not any(values for (_, of), values in figures.items() if of == column.header)
    ]
    lines = [f"# {experiment.title}", "", *_table(experiment, figures), ""]
    lines += [
        "Figures in per cent, but for perplexities; ours are means over seeds of fine-tuning, ± their standard "
        "deviation. The model under an arm is pre-trained once: the deviations say nothing of another pre-training.",
        "",
    ]
    if missing:
        lines += [f"No data were given for {', '.join(missing)}: these columns of ours are empty.", ""]
    lines += [*(f"- {note}" for note in experiment.notes), ""] if experiment.notes else []
    said = sentences(experiment, figures)
    if said:
        lines += [
            f"An order is told where means differ by more than {STANDARD_ERRORS:g} standard errors of the difference:",
            "",
            *(f"- {sentence}" for sentence in said),
            "",
        ]
    lines += [f"![{experiment.title}]({picture})", "", *(f"- {name}: {value}" for name, value in about.items())]
    return "\n".join(lines) + "\n"


def _table(experiment: Experiment, figures: Figures) -> list[str]:
    heads = list(experiment.heads)
    for column in experiment.columns:
        heads += [f"{column.header}, paper", "ours"] if _has_paper(experiment, column) else [column.header]
    rows = [_row(experiment, arm, figures) for arm in experiment.arms]
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


def _has_paper(experiment: Experiment, column: Column) -> bool:
    return any(column.header in arm.paper for arm in experiment.arms)


def _row(experiment: Experiment, arm: Arm, figures: Figures) -> list[str]:
    cells = list(arm.cells or (arm.name,))
    for column in experiment.columns:
        if _has_paper(experiment, column):
            cells.append(f"{arm.paper[column.header]:g}" if column.header in arm.paper else "")
        cells.append(cell(figures.get((arm.name, column.header))))
    return cells
