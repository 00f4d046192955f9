"""The format of pre-training examples, declared once, for every objective.

Legend: T `max_seq_length`, P predictions a row has room for, S sequences a row has room for.

`mlm_nsp`: names, types and padding are google-research/bert's (create_pretraining_data.py). "my dog is ##ok ! [SEP] he
likes play" with T = 16, P = 3 and two masked pieces:

    input_ids              [CLS] my [MASK] is ##ok ! [SEP] he likes [MASK] [SEP]  0 0 0 0 0
    input_mask               1   1    1    1   1   1   1   1    1     1      1    0 0 0 0 0
    segment_ids              0   0    0    0   0   0   0   1    1     1      1    0 0 0 0 0
    masked_lm_positions      2   9    0
    masked_lm_ids           dog play  0
    masked_lm_weights       1.0 1.0  0.0
    next_sentence_labels     0                       (0 = the second segment follows the first, 1 = random)

What the other objectives have is the same without next_sentence_labels, and in input_ids:

    segment_pair             [CLS] my dog is ##ok ! [SEP] he likes play [SEP]     (or [CLS] my dog is ##ok ! [SEP])
    full_sentences           [CLS] my dog is ##ok ! [SEP] he likes play [SEP] [SEP] another document [SEP]
    doc_sentences            [CLS] my dog is ##ok ! [SEP] he likes play [SEP]
    single_sequence          [CLS] my dog is ##ok ! he likes play [SEP]
    left_to_right            [CLS] my dog is ##ok ! he likes play [SEP]           (no masked_lm_*: nothing is masked)

segment_ids are 0 throughout but for segment_pair. Dynamic masking: the training split holds the tokens as they are, and
no masked_lm_*; the `eval` split is masked as above.

Packed: up to S sequences in a row, one after another, each as above; masked_lm_positions are positions in the row.
"[CLS] he likes [SEP] play [SEP]" and "[CLS] my dog [SEP] is ##ok [SEP]" with T = 16, P = 4, S = 3:

    input_ids                [CLS] [MASK] likes [SEP] play [SEP] [CLS] my dog [SEP] is [MASK] [SEP]  0 0 0
    input_mask                 1     1      1     1    1     1     1   1   1    1   1    1      1    0 0 0
    segment_ids                0     0      0     0    1     1     0   0   0    0   1    1      1    0 0 0
    sequence_ids               1     1      1     1    1     1     2   2   2    2   2    2      2    0 0 0
    position_ids               0     1      2     3    4     5     0   1   2    3   4    5      6    0 0 0
    masked_lm_positions        1    11  0 0
    masked_lm_ids             he  ##ok  0 0
    masked_lm_weights        1.0   1.0  0.0 0.0
    next_sentence_positions    0     6    0          (mlm_nsp alone: where the [CLS] of each sequence is)
    next_sentence_labels       1     0    0
    next_sentence_weights    1.0   1.0  0.0

A token attends to those of its own sequence alone: that is what sequence_ids are for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bert_keras.masking import MaskingSettings

if TYPE_CHECKING:
    import tensorflow as tf

# What workers import must not import TensorFlow: the functions that need it do.

# Beside the shards, at the root of the examples artifact.
EXAMPLE_SPEC_FILE = "example_spec.json"
VOCABULARY_FILE = "vocab.txt"
VOCABULARY_SPEC_FILE = "vocab_spec.json"
MERGES_FILE = "merges.txt"


class Feature(NamedTuple):
    """A feature of an example.

    Attributes:
        length: values.
        holds: what they are: `ids` of tokens, `flags` 0 or 1, `positions` in a row, numbers of `sequences` from 1 up (0
            is padding), all int64; or `weights`, float32 from 0.0 to 1.0.
    """

    length: int
    holds: Literal["ids", "flags", "positions", "sequences", "weights"]


@dataclasses.dataclass(frozen=True)
class ExampleLayout:
    """What decides which features examples have, and how long they are.

    Attributes:
        objective: what is learned (`components.pretrain_example_gen.settings.ExampleSettings`).
        max_seq_length: T.
        max_predictions_per_seq: P, of a row: of packed rows it is what all their sequences together may have.
        max_sequences: S; 1: rows are not packed.
        masking: `static` or `dynamic` (`bert_keras.masking.MaskingSettings.when`).
    """

    objective: str
    max_seq_length: int
    max_predictions_per_seq: int
    max_sequences: int
    masking: str

    @classmethod
    def bert(cls, max_seq_length: int, max_predictions_per_seq: int) -> ExampleLayout:
        """The original's: mlm_nsp, masked, a sequence a row."""
        return cls("mlm_nsp", max_seq_length, max_predictions_per_seq, 1, "static")

    def features(self, *, masked: bool) -> dict[str, Feature]:
        """The features by name.

        Args:
            masked: whether the examples are stored masked: under dynamic masking those of the `eval` split alone are.
        """
        T, P, S = self.max_seq_length, self.max_predictions_per_seq, self.max_sequences
        features = {
            "input_ids": Feature(T, "ids"),
            "input_mask": Feature(T, "flags"),
            "segment_ids": Feature(T, "flags"),
        }
        if S > 1:
            features["sequence_ids"] = Feature(T, "sequences")
            features["position_ids"] = Feature(T, "positions")
        if masked and self.objective != "left_to_right":
            features["masked_lm_positions"] = Feature(P, "positions")
            features["masked_lm_ids"] = Feature(P, "ids")
            features["masked_lm_weights"] = Feature(P, "weights")
        if self.objective == "mlm_nsp":
            features["next_sentence_labels"] = Feature(S, "flags")
            if S > 1:
                features["next_sentence_positions"] = Feature(S, "positions")
                features["next_sentence_weights"] = Feature(S, "weights")
        return features


def feature_spec(layout: ExampleLayout, *, masked: bool) -> dict[str, tf.io.FixedLenFeature]:
    """`layout.features`, as `tf.io.parse_example` takes them."""
    import tensorflow as tf

    return {
        name: tf.io.FixedLenFeature([feature.length], tf.float32 if feature.holds == "weights" else tf.int64)
        for name, feature in layout.features(masked=masked).items()
    }


@dataclasses.dataclass(frozen=True)
class ExampleSpec:
    """What training must know of the examples (the part it reads of `example_spec.json`).

    Attributes:
        max_seq_length: T.
        max_predictions_per_seq: P, of a row.
        vocab_size: V.
        vocabulary_sha256: of vocab.txt.
        train_examples: rows of the training split.
        eval_examples: held-out rows.
        objective: what is learned.
        masking: how tokens are masked; its `max_predictions_per_seq` is of a sequence.
        max_sequences: S, sequences a row has room for; 1: rows are not packed.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    vocab_size: int
    vocabulary_sha256: str
    train_examples: int
    eval_examples: int
    objective: str = "mlm_nsp"
    masking: MaskingSettings = dataclasses.field(default_factory=MaskingSettings)
    max_sequences: int = 1

    @property
    def layout(self) -> ExampleLayout:
        """Which features the examples have."""
        return ExampleLayout(
            self.objective,
            self.max_seq_length,
            self.max_predictions_per_seq,
            self.max_sequences,
            self.masking.when,
        )

    @classmethod
    def load(cls, directory: str) -> ExampleSpec:
        """Reads the spec beside the shards in `directory`.

        Raises:
            ValueError: it is of a version that did not write all that is needed.
        """
        import tensorflow as tf

        path = f"{directory}/{EXAMPLE_SPEC_FILE}"
        with tf.io.gfile.GFile(path) as file:
            spec = json.load(file)
        masking_fields = {field.name for field in dataclasses.fields(MaskingSettings)}
        try:
            masking = {"max_predictions_per_seq": spec["max_predictions_per_seq"], **spec.get("masking", {})}
            return cls(
                max_seq_length=spec["max_seq_length"],
                max_predictions_per_seq=spec["max_predictions_per_seq"],
                vocab_size=spec["vocab_size"],
                vocabulary_sha256=spec["vocabulary_sha256"],
                train_examples=spec["counts"]["train"]["instances"],
                eval_examples=spec["counts"]["eval"]["instances"],
                objective=spec.get("objective", cls.objective),
                masking=MaskingSettings(**{k: v for k, v in masking.items() if k in masking_fields}),
                max_sequences=spec["max_sequences_per_pack"] if spec.get("packing") else cls.max_sequences,
            )
        except KeyError as missing:
            raise ValueError(f"{path} has no {missing}: make the examples again with this version") from missing


def read_vocabulary(directory: str) -> tuple[list[str], dict[str, Any]]:
    """The tokens of `vocab.txt` in `directory`, in the order of their ids, and what `vocab_spec.json` says of them.

    Raises:
        ValueError: `vocab.txt` is not the file that the spec is of.
    """
    import tensorflow as tf

    path = f"{directory}/{VOCABULARY_FILE}"
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    with tf.io.gfile.GFile(f"{directory}/{VOCABULARY_SPEC_FILE}") as file:
        spec = json.load(file)
    if hashlib.sha256(content).hexdigest() != spec["vocabulary_sha256"]:
        raise ValueError(f"{path} is not the file that {VOCABULARY_SPEC_FILE} beside it is of: its sha256 differs")
    return content.decode("utf-8").rstrip("\n").split("\n"), spec
