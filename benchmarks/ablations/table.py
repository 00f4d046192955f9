"""Page of an experiment in Markdown: the paper's table with our figures, and the orders."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.ablations.experiment import AblationExperiment
from benchmarks.ablations.runner import Figures
from benchmarks.ablations.significance import STANDARD_ERRORS, Summary, sentences


def cell(values: list[float] | None) -> str:
    """Mean and standard deviation over seeds; empty without data, "-" without a score.

    >>> cell([50.0, 52.0]), cell([50.0]), cell([]), cell(None)
    ('51.0 ± 1.4', '50.0', '-', '')
    """
    if not values:
        return "" if values is None else "-"
    summary = Summary.of(values)
    return f"{summary.mean:.1f}" + (f" ± {summary.deviation:.1f}" if summary.deviation is not None else "")


def page(
    experiment: AblationExperiment, figures: Figures, about: Mapping[str, str], picture: str, pretrainings: int
) -> str:
    """Write the page.

    Args:
        about: conditions of the run by name, one line each.
        picture: path of the picture, relative to the page.
        pretrainings: number of each arm.
    """
    columns = experiment.columns
    missing = [
        column.header
        for column in columns
        if not any(values for (_, header), values in figures.items() if header == column.header)
    ]
    lines = [f"# {experiment.title}", "", *_table(experiment, figures), ""]
    included = "once: the deviations do not include that of pre-training"
    if pretrainings > 1:
        included = f"{pretrainings} times: the deviations include that of pre-training"
    lines += [
        "Figures are in per cent, except perplexities; ours are means over seeds of fine-tuning, ± their standard "
        f"deviation. Each arm's model is pre-trained {included}.",
        "",
    ]
    if missing:
        lines += [f"No data for {', '.join(missing)}: these columns of ours are empty.", ""]
    lines += [*(f"- {note}" for note in experiment.notes), ""] if experiment.notes else []
    orders = sentences(experiment, figures)
    if orders:
        lines += [
            f"An order counts if the means differ by more than {STANDARD_ERRORS:g} standard errors of the difference:",
            "",
            *(f"- {sentence}" for sentence in orders),
            "",
        ]
    lines += [f"![{experiment.title}]({picture})", "", *(f"- {name}: {value}" for name, value in about.items())]
    return "\n".join(lines) + "\n"


def _table(experiment: AblationExperiment, figures: Figures) -> list[str]:
    """Two columns, the paper's and ours, for each with figures in the paper; else one."""
    in_paper = [any(column.header in arm.paper for arm in experiment.arms) for column in experiment.columns]
    rows = [[*experiment.heads], *([*(arm.cells or (arm.name,))] for arm in experiment.arms)]
    for column, has_paper in zip(experiment.columns, in_paper, strict=True):
        rows[0] += [f"{column.header}, paper", "ours"] if has_paper else [column.header]
        for arm, row in zip(experiment.arms, rows[1:], strict=True):
            if has_paper:
                row.append(f"{arm.paper[column.header]:g}" if column.header in arm.paper else "")
            row.append(cell(figures.get((arm.name, column.header))))
    return [f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])]
