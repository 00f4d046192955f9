"""An experiment as data: rows (arms) and columns of a table; what is run for a cell, and what the paper has there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Column:
    """A column: a task, or a figure of the pre-trained model.

    Attributes:
        header: what the table calls it; the paper's name where it has one.
        metric: a score of the task (`bert_keras.tasks.scores`), or a figure of the pre-training's held-out evaluation.
        task: by name; empty: nothing is fine-tuned.
        settings: of the fine-tuning, as `--set` would change them.
        step: of pre-training, from which fine-tuning starts; None: the last.
        x: where a line's point is, of experiments that are drawn as lines.
        higher_is_better: false of perplexities.
    """

    header: str
    metric: str
    task: str = ""
    settings: tuple[str, ...] = ()
    step: int | None = None
    x: float | None = None
    higher_is_better: bool = True


@dataclasses.dataclass(frozen=True)
class Arm:
    """A row.

    Attributes:
        name: what sentences and pictures call it.
        pretraining: settings of the pre-training, as `--set` would change them; arms with the same share it.
        finetuning: settings of the fine-tuning.
        cells: its first cells; none: its name.
        paper: the paper's figures, by header.
        step: of pre-training, from which fine-tuning starts, whatever the column; 0: weights as they are drawn.
    """

    name: str
    pretraining: tuple[str, ...] = ()
    finetuning: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    paper: Mapping[str, float] = dataclasses.field(default_factory=dict)
    step: int | None = None


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table.

    Attributes:
        name: as the command line calls it.
        title: what is compared, and which table of which paper it is.
        heads: the headers of the arms' first cells.
        arms: the rows.
        columns: the columns.
        claims: (higher, lower) arms, in each column in which the paper has no figures.
        notes: sentences on what is not as in the paper.
        x_label: of experiments that are drawn as lines, an arm each; empty: columns are panels, arms are points.
    """

    name: str
    title: str
    heads: tuple[str, ...]
    arms: tuple[Arm, ...]
    columns: tuple[Column, ...]
    claims: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    x_label: str = ""

    def orders(self, column: Column) -> list[tuple[Arm, Arm]]:
        """(better, worse) arms of the paper in a column: by its figures, where it has two; else its claims."""
        known = [arm for arm in self.arms if column.header in arm.paper]
        if len(known) < 2:
            by_name = {arm.name: arm for arm in self.arms}
            return [(by_name[better], by_name[worse]) for better, worse in self.claims]
        sign = 1 if column.higher_is_better else -1
        return [
            (better, worse)
            for better in known
            for worse in known
            if sign * (better.paper[column.header] - worse.paper[column.header]) > 0
        ]
