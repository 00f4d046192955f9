"""A row of a task's data: raw text and its gold answer, in the form that is stored, trained on, served and scored.

As a `tf.Example`: `row_id` bytes[1]; `gold` bytes[1], JSON; one bytes feature per input, with the name and shape of
the served model's input; and, if the file names the source of a row, `source` bytes[1]. By task type:

    task type        inputs                                      gold (JSON), None if unknown
    classification   text [1], for pairs also text_pair [1]      "entailment"                 a label's name
    multi_label      the same                                    ["joy", "surprise"]          the right ones, sorted
    regression       text [1], for pairs also text_pair [1]      3.8
    ranking          text [1], the query; text_pair [1]          ["who?", 1]                  the query, the relevance
                                                                                              from 0: not relevant
    multiple_choice  text [1], choices [C]                       2                            the right choice, from 0
    span             question [1], context [1]                   {"answers": [{"text": "in May", "answer_start": 17}]}
                                                                 (no answers: unanswerable)
    tagging          text [1], words separated by spaces         ["B-person", "I-person", "O"]   one tag per word
    similarity       text [1]; perhaps text_pair [1], its        4.2   of scored pairs; None in training
                     positive; perhaps negative [1]
    retrieval        the same                                    the text_pair; None without one
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from bert_keras.data.tfrecord import Example, bytes_example, frame
from bert_keras.tasks.settings import TASK_SPEC_FILE, TaskSpec
from bert_keras.tasks.table import Task

Input = str | tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class TaskRow:
    """One row."""

    row_id: str  # the official id if the data have one (SQuAD, GLUE's index), else the number of the row from 0
    inputs: Mapping[str, Input]  # by name, as above; `choices` is a tuple
    gold: Any = None  # the gold answer, as above; None in test sets
    source: str = ""  # source of the row (MNLI's genre), a slice of the scores; "" if unknown

    def to_features(self) -> dict[str, list[bytes]]:
        """Convert to the features of a `tf.Example`."""
        features = {"row_id": [self.row_id.encode()], "gold": [json.dumps(self.gold, ensure_ascii=False).encode()]}
        if self.source:
            features["source"] = [self.source.encode()]
        for name, value in self.inputs.items():
            features[name] = [text.encode() for text in ((value,) if isinstance(value, str) else value)]
        return features

    @classmethod
    def from_features(cls, features: Mapping[str, list[bytes]]) -> "TaskRow":
        """Inverse of `to_features`."""
        inputs: dict[str, Input] = {}
        for name, values in features.items():
            if name not in ("row_id", "gold", "source"):
                texts = tuple(value.decode() for value in values)
                inputs[name] = texts if name == "choices" else texts[0]
        (source,) = features.get("source", [b""])
        return cls(features["row_id"][0].decode(), inputs, json.loads(features["gold"][0]), source.decode())


@dataclasses.dataclass(frozen=True, eq=False)
class TaskFeatures:
    """A model's inputs for rows: sequences of token ids."""

    # By name, [N, ...]: the backbone's inputs (`input_ids`, `input_mask`, `segment_ids`, int32 [N, T], for multiple
    # choice [N, C, T]) and the objective's labels (`labels`, `token_labels`, `weights`, ...).
    arrays: dict[str, np.ndarray]
    row_of: np.ndarray  # int64 [N], the row of each sequence; a context may have several windows
    windows: Any = None  # maps positions to answers: to characters for spans, to words for tagging


def write_rows(directory: str, task: Task, splits: Mapping[str, Sequence[TaskRow]]) -> None:
    """Write rows as a `FinetuneJob` reads them: `Split-NAME/examples-00000-of-00001.tfrecord` and `task_spec.json`.

    `splits`: `train` and `eval`, whose golds are known, and any others, by name.
    """
    root = epath.Path(directory)
    for split, rows in splits.items():
        folder = root / f"Split-{split}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "examples-00000-of-00001.tfrecord").open("wb") as file:
            for row in rows:
                file.write(frame(bytes_example(row.to_features())))
    counts = {split: len(rows) for split, rows in splits.items()}
    (root / TASK_SPEC_FILE).write_text(TaskSpec(task, counts).to_json())


def read_rows(examples: Iterable[bytes]) -> Iterator[TaskRow]:
    """The rows of serialized `tf.Example`s."""
    for serialized in examples:
        features = Example.FromString(serialized).features.feature
        yield TaskRow.from_features({name: list(value.bytes_list.value) for name, value in features.items()})
