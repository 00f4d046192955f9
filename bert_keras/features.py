"""The format of a pre-training example, declared once.

Legend: T `max_seq_length`, P `max_predictions_per_seq`. Names, types and padding are google-research/bert's
(create_pretraining_data.py). "my dog is ##ok ! [SEP] he likes play" with T = 16, P = 3 and two masked pieces:

    input_ids              [CLS] my [MASK] is ##ok ! [SEP] he likes [MASK] [SEP]  0 0 0 0 0
    input_mask               1   1    1    1   1   1   1   1    1     1      1    0 0 0 0 0
    segment_ids              0   0    0    0   0   0   0   1    1     1      1    0 0 0 0 0
    masked_lm_positions      2   9    0
    masked_lm_ids           dog play  0
    masked_lm_weights       1.0 1.0  0.0
    next_sentence_labels     0                       (0 = the second segment follows the first, 1 = random)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import tensorflow as tf

# Beside the shards, at the root of the examples artifact.
EXAMPLE_SPEC_FILE = "example_spec.json"
VOCABULARY_FILE = "vocab.txt"
VOCABULARY_SPEC_FILE = "vocab_spec.json"


def feature_spec(max_seq_length: int, max_predictions_per_seq: int) -> dict[str, tf.io.FixedLenFeature]:
    """The features of one example, as `tf.io.parse_example` takes them."""
    tokens, predictions = [max_seq_length], [max_predictions_per_seq]
    return {
        "input_ids": tf.io.FixedLenFeature(tokens, tf.int64),
        "input_mask": tf.io.FixedLenFeature(tokens, tf.int64),
        "segment_ids": tf.io.FixedLenFeature(tokens, tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature(predictions, tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature(predictions, tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature(predictions, tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }


@dataclasses.dataclass(frozen=True)
class ExampleSpec:
    """What training must know of the examples (the part it reads of `example_spec.json`)."""

    max_seq_length: int
    max_predictions_per_seq: int
    vocab_size: int
    vocabulary_sha256: str
    train_examples: int
    eval_examples: int

    @classmethod
    def load(cls, directory: str) -> ExampleSpec:
        """Reads the spec beside the shards in `directory`."""
        path = f"{directory}/{EXAMPLE_SPEC_FILE}"
        with tf.io.gfile.GFile(path) as file:
            spec = json.load(file)
        try:
            return cls(
                max_seq_length=spec["max_seq_length"],
                max_predictions_per_seq=spec["max_predictions_per_seq"],
                vocab_size=spec["vocab_size"],
                vocabulary_sha256=spec["vocabulary_sha256"],
                train_examples=spec["counts"]["train"]["instances"],
                eval_examples=spec["counts"]["eval"]["instances"],
            )
        except KeyError as missing:
            raise ValueError(f"{path} has no {missing}: make the examples again with this version") from missing


def read_vocabulary(directory: str) -> tuple[list[str], dict[str, Any]]:
    """The tokens of `vocab.txt` in `directory`, in the order of their ids, and what `vocab_spec.json` says of them.

    Raises:
        ValueError: `vocab.txt` is not the file that the spec is of.
    """
    path = f"{directory}/{VOCABULARY_FILE}"
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    with tf.io.gfile.GFile(f"{directory}/{VOCABULARY_SPEC_FILE}") as file:
        spec = json.load(file)
    if hashlib.sha256(content).hexdigest() != spec["vocabulary_sha256"]:
        raise ValueError(f"{path} is not the file that {VOCABULARY_SPEC_FILE} beside it is of: its sha256 differs")
    return content.decode("utf-8").rstrip("\n").split("\n"), spec
