"""How a task's files are read and split."""

from __future__ import annotations

import dataclasses
from typing import Literal

OnBadRow = Literal["fail", "skip"]


@dataclasses.dataclass(frozen=True)
class Columns:
    """What the columns (keys of JSON lines) of one's own tables are called.

    Attributes:
        text: the text.
        text_pair: the second text, of tasks with two.
        label: the label's name; a table of texts to be labelled need not have it.
        source: where the text comes from, by which held-out rows are also scored; "": no column.
    """

    text: str = "text"
    text_pair: str = "text_pair"
    label: str = "label"
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("text", "text_pair", "label"):
            if not getattr(self, name):
                raise ValueError(f"data.columns.{name} is empty; it must be a column's name")


@dataclasses.dataclass(frozen=True)
class TaskDataSettings:
    """How official files become a task's rows.

    Attributes:
        on_bad_row: a row that is not as it should be stops the run (`fail`), or is left out and counted (`skip`).
        eval_fraction: share of the training rows that is held out where there is no file of eval rows.
        max_train_rows: so many rows to train on, a seeded sample of all; 0: all.
        max_eval_rows: so many rows to evaluate on, as well, of each eval split; test sets stay whole.
        seed: of what is held out and of the samples.
        columns: of one's own tables (tasks `text` and `text-pair`).
    """

    on_bad_row: OnBadRow = "fail"
    eval_fraction: float = 0.1
    max_train_rows: int = 0
    max_eval_rows: int = 0
    seed: int = 0
    columns: Columns = dataclasses.field(default_factory=Columns)

    def __post_init__(self) -> None:
        if not 0.0 < self.eval_fraction < 1.0:
            raise ValueError(f"data.eval_fraction is {self.eval_fraction}; it must be between 0 and 1")
        for name in ("max_train_rows", "max_eval_rows"):
            if getattr(self, name) < 0:
                raise ValueError(f"data.{name} is {getattr(self, name)}; it must be at least 0 (0: all)")
