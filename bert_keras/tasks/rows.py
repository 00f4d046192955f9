"""A row of a task's data: raw text and what is right, as it is stored, trained on, served and scored.

As a `tf.Example`: `row_id` bytes[1]; `gold` bytes[1], JSON; and one bytes feature an input, named and shaped as the
served model's input; where the file tells where a row comes from, `source` bytes[1]. By kind of task:

    kind             inputs                                      gold (JSON), None where it is not known
    classification   text [1], and of pairs text_pair [1]        "entailment"                 a label's name
    regression       text [1], and of pairs text_pair [1]        3.8
    multiple_choice  text [1], choices [C]                       2                            the right choice, from 0
    span             question [1], context [1]                   {"answers": [{"text": "in May", "answer_start": 17}]}
                                                                 (no answers: it is unanswerable)
    tagging          text [1], words apart by spaces             ["B-person", "I-person", "O"]   a tag a word
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

Input = str | tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class TaskRow:
    """One row.

    Attributes:
        row_id: the official id where the data have one (SQuAD, GLUE's index), else the number of the row from 0.
        inputs: by name, as above; `choices` is a tuple.
        gold: what is right, as above; None in test sets.
        source: where it comes from (MNLI's genre), by which rows are also scored; "" where nothing says it.
    """

    row_id: str
    inputs: Mapping[str, Input]
    gold: Any = None
    source: str = ""

    def to_features(self) -> dict[str, list[bytes]]:
        """As the features of a `tf.Example`."""
        features = {"row_id": [self.row_id.encode()], "gold": [json.dumps(self.gold, ensure_ascii=False).encode()]}
        if self.source:
            features["source"] = [self.source.encode()]
        for name, value in self.inputs.items():
            features[name] = [text.encode() for text in ((value,) if isinstance(value, str) else value)]
        return features

    @classmethod
    def from_features(cls, features: Mapping[str, list[bytes]]) -> TaskRow:
        """The row that `to_features` gave."""
        inputs: dict[str, Input] = {}
        for name, values in features.items():
            if name not in ("row_id", "gold", "source"):
                texts = tuple(value.decode() for value in values)
                inputs[name] = texts if name == "choices" else texts[0]
        (source,) = features.get("source", [b""])
        return cls(features["row_id"][0].decode(), inputs, json.loads(features["gold"][0]), source.decode())


@dataclasses.dataclass(frozen=True, eq=False)
class TaskFeatures:
    """What a model reads of rows: sequences of pieces.

    Attributes:
        arrays: by name, [N, ...]: the backbone's inputs (`input_ids`, `input_mask`, `segment_ids`, int32 [N, T], of
            multiple choice [N, C, T]) and what the objective reads (`labels`, `token_labels`, `weights`, ...).
        row_of: int64 [N], the row that each comes from; a span's context may give several windows.
        windows: what turns positions into answers: of spans into characters, a window each; of tagging into words.
    """

    arrays: dict[str, np.ndarray]
    row_of: np.ndarray
    windows: Any = None


def read_rows(examples: Iterable[bytes]) -> Iterator[TaskRow]:
    """The rows of serialized `tf.Example`s."""
    import tensorflow as tf

    for serialized in examples:
        features = tf.train.Example.FromString(serialized).features.feature
        yield TaskRow.from_features({name: list(value.bytes_list.value) for name, value in features.items()})
