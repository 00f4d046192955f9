"""Settings for reading and splitting a task's files."""

import dataclasses
from typing import Annotated, Literal

from bert_keras.errors import ProperShare, Rule, Settings, Share

OnBadRow = Literal["fail", "skip"]
_Name = Annotated[str, Rule(bool, "a column's name")]
_Limit = Annotated[int, Rule(lambda rows: rows >= 0, "at least 0 (0: all)")]


@dataclasses.dataclass(frozen=True)
class Columns(Settings, section="data.columns"):
    """Names of columns (or JSON keys) in the user's own tables.

    Attributes:
        text: the text.
        text_pair: the second text, for tasks with two.
        label: the label; optional in tables of texts to predict.
        source: the origin of the text; held-out rows are also scored by origin; "": no column.
        negative: a hard negative, for vectors of texts; optional.
    """

    text: _Name = "text"
    text_pair: _Name = "text_pair"
    label: _Name = "label"
    source: str = ""
    negative: _Name = "negative"


@dataclasses.dataclass(frozen=True)
class TaskDataSettings(Settings, section="data"):
    """Settings for making a task's rows from its official files.

    Attributes:
        on_bad_row: a malformed row stops the run (`fail`), or is skipped and counted (`skip`).
        eval_fraction: share of the training rows to hold out if there is no file of eval rows.
        max_train_rows: maximum number of training rows, a seeded sample of all; 0: all.
        max_eval_rows: likewise for each eval split; test splits are complete.
        seed: seed for the held-out rows and the samples.
        columns: columns of the user's own tables (tasks `text`, `text-...`, `rerank` and `sentence-...`).
        max_unknown_fraction: limit for the share of [UNK] among the tokens of the rows, with the vocabulary of the
            initial checkpoint; a run above it stops before training. English texts have less than 0.006 with BERT's
            English vocabularies, Korean ones 0.04 to 0.08, Chinese ones 0.6.
    """

    on_bad_row: OnBadRow = "fail"
    eval_fraction: ProperShare = 0.1
    max_train_rows: _Limit = 0
    max_eval_rows: _Limit = 0
    seed: int = 0
    columns: Columns = dataclasses.field(default_factory=Columns)
    max_unknown_fraction: Share = 0.02
