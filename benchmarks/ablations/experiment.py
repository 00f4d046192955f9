"""An experiment as data: rows (arms) and columns of a table, their settings, and the paper's figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

# In the place of a task: pairs of sentences that pre-trained models score (`components.evaluator.minimal_pairs`).
MINIMAL_PAIRS = "minimal-pairs"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column: a task, or a metric of the pre-trained model.

    Attributes:
        header: title in the table; the paper's, if it has one.
        metric: a score of the task (`bert_keras.tasks.metrics.scores`), or a held-out metric of the pre-training.
        task: name of the task, or MINIMAL_PAIRS; empty: nothing is fine-tuned.
        settings: settings of the fine-tuning, in the form of `--set`.
        step: step of pre-training from which fine-tuning starts; None: the last.
        x: position on the x axis, for experiments drawn as lines.
        higher_is_better: false for perplexities.
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
        name: name in sentences and pictures.
        pretraining: settings of the pre-training, in the form of `--set`; arms with equal settings share a model.
        finetuning: settings of the fine-tuning.
        cells: its first cells; default: its name.
        paper: the paper's figures, by header.
        step: step of pre-training from which fine-tuning starts, in every column; 0: random weights.
    """

    name: str
    pretraining: tuple[str, ...] = ()
    finetuning: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    paper: Mapping[str, float] = dataclasses.field(default_factory=dict)
    step: int | None = None


@dataclasses.dataclass(frozen=True)
class AblationExperiment:
    """An experiment of the paper, that is a table.

    Attributes:
        title: title, with the paper and the number of its table.
        heads: headers of the arms' first cells.
        claims: (higher, lower) arms, for columns without figures in the paper.
        notes: sentences on differences from the paper.
        x_label: for experiments drawn as lines, one line per arm; empty: one panel per column, one point per arm.
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
        """(better, worse) arms in a column: by the paper's figures if it has at least two, else by the claims."""
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
