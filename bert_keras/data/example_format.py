"""The format of pre-training examples, for every objective.

Legend: T `max_seq_length`, P predictions that fit in a row, S sequences that fit in a row.

`mlm_nsp`: names, types and padding are google-research/bert's (create_pretraining_data.py). "my dog is ##ok ! [SEP] he
likes play" with T = 16, P = 3 and two masked tokens:

    input_ids              [CLS] my [MASK] is ##ok ! [SEP] he likes [MASK] [SEP]  0 0 0 0 0
    input_mask               1   1    1    1   1   1   1   1    1     1      1    0 0 0 0 0
    segment_ids              0   0    0    0   0   0   0   1    1     1      1    0 0 0 0 0
    masked_lm_positions      2   9    0
    masked_lm_ids           dog play  0
    masked_lm_weights       1.0 1.0  0.0
    next_sentence_labels     0                       (0 = the second segment follows the first, 1 = random)

`mlm_sop` has the same features, as google-research/albert's: next_sentence_labels 1 = the segments are swapped. The
other objectives have the same features without next_sentence_labels; their input_ids:

    segment_pair             [CLS] my dog is ##ok ! [SEP] he likes play [SEP]     (or [CLS] my dog is ##ok ! [SEP])
    full_sentences           [CLS] my dog is ##ok ! [SEP] he likes play [SEP] [SEP] another document [SEP]
    doc_sentences            [CLS] my dog is ##ok ! [SEP] he likes play [SEP]
    single_sequence          [CLS] my dog is ##ok ! he likes play [SEP]
    left_to_right            [CLS] my dog is ##ok ! he likes play [SEP]           (no masked_lm_*: nothing is masked)

segment_ids are 0, except for segments in pairs. Dynamic masking: the training split holds unmasked tokens and no
masked_lm_*; the `eval` split is masked as above.

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
    next_sentence_positions    0     6    0          (with labels only: position of each sequence's [CLS])
    next_sentence_labels       1     0    0
    next_sentence_weights    1.0   1.0  0.0

A token attends only to its own sequence, by sequence_ids.

The `eval` split has further features, which only the Evaluator reads, for its standard errors and slices:

    document_group           1013      (`DOCUMENT_PARTS` x the group of its document + the part of the document)
    source                   wiki      (bytes; only of sources that have names)

Rows of different groups share no document, but for random second segments, and full sentences that reach into the next
document. Packed rows hold sequences of one group (docs/decisions/0043-standard-errors-are-of-documents.md).
"""

import concurrent.futures
import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from etils import epath

from bert_keras.data.masking import MaskingSettings
from bert_keras.errors import InputError
from bert_keras.files import files_in, size_of

if TYPE_CHECKING:
    import tensorflow as tf

# Beam workers import this module without TensorFlow; the functions that need it import it.

# Beside the shards, at the root of the examples artifact.
EXAMPLE_SPEC_FILE = "example_spec.json"
SHARDS_FILE = "example_shards.json"
# In `corpus.json` and `example_spec.json`, the first with `corpus.source_power` below 1.
SOURCE_RATES, EVAL_FRACTION = "source_rates", "eval_fraction"
DOCUMENT_GROUP, SOURCE = "document_group", "source"
# Groups of documents, and the parts into which few documents are cut.
DOCUMENT_GROUPS, DOCUMENT_PARTS = 256, 4
# Objectives whose examples have a separator after each sentence.
SEPARATED = ("full_sentences", "doc_sentences")
# Objectives whose examples are pairs of segments with a label.
LABELLED = ("mlm_nsp", "mlm_sop")


class Feature(NamedTuple):
    """A feature of an example.

    `length`: number of values. `holds`: their meaning: token `ids`, `flags` 0 or 1, `positions` in a row, numbers of
    `sequences` from 1 (0 is padding), all int64; or `weights`, float32 from 0.0 to 1.0.
    """

    length: int
    holds: Literal["ids", "flags", "positions", "sequences", "weights"]


@dataclasses.dataclass(frozen=True)
class ExampleLayout:
    """The settings that determine the features of examples and their lengths."""

    objective: str  # name of the objective (`components.pretrain_example_gen.settings.ExampleSettings`)
    max_seq_length: int  # T
    max_predictions_per_seq: int  # P, per row: for all sequences of a packed row together
    max_sequences: int  # S; 1: rows are not packed
    masking: str  # `static` or `dynamic` (`bert_keras.data.masking.MaskingSettings.when`)

    @classmethod
    def bert(cls, max_seq_length: int, max_predictions_per_seq: int) -> "ExampleLayout":
        """The original's layout: mlm_nsp, masked, one sequence per row."""
        return cls("mlm_nsp", max_seq_length, max_predictions_per_seq, 1, "static")

    def features(self, *, masked: bool) -> dict[str, Feature]:
        """The features by name; `masked`: as stored masked; with dynamic masking only the `eval` split is."""
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
        if self.objective in LABELLED:
            features["next_sentence_labels"] = Feature(S, "flags")
            if S > 1:
                features["next_sentence_positions"] = Feature(S, "positions")
                features["next_sentence_weights"] = Feature(S, "weights")
        return features


def feature_spec(layout: ExampleLayout, *, masked: bool) -> "dict[str, tf.io.FixedLenFeature]":
    """`layout.features` in the form of `tf.io.parse_example`."""
    import tensorflow as tf

    return {
        name: tf.io.FixedLenFeature([feature.length], tf.float32 if feature.holds == "weights" else tf.int64)
        for name, feature in layout.features(masked=masked).items()
    }


@dataclasses.dataclass(frozen=True)
class ExampleSpec:
    """The part of `example_spec.json` that training reads."""

    max_seq_length: int  # T
    max_predictions_per_seq: int  # P, per row
    vocab_size: int  # V
    vocabulary_sha256: str  # sha256 of vocab.txt
    train_examples: int  # number of training rows
    eval_examples: int  # number of held-out rows
    objective: str = "mlm_nsp"  # name of the objective
    # Its `max_predictions_per_seq` is per sequence.
    masking: MaskingSettings = dataclasses.field(default_factory=MaskingSettings)
    max_sequences: int = 1  # S; 1: rows are not packed
    replay: bool = False  # whether they are general text; a share of it is mixed into every batch of other examples
    # How often the text of each source is read (`bert_keras.data.mixture.source_rates`); empty: alike.
    source_rates: Mapping[str, float] = dataclasses.field(default_factory=dict, compare=False)
    # Share of the documents that is held out, by a hash; None: examples of an older version.
    eval_fraction: float | None = dataclasses.field(default=None, compare=False)

    @property
    def layout(self) -> ExampleLayout:
        """The layout of the examples."""
        return ExampleLayout(
            self.objective, self.max_seq_length, self.max_predictions_per_seq, self.max_sequences, self.masking.when
        )

    @classmethod
    def load(cls, directory: str) -> "ExampleSpec":
        """Read the spec beside the shards in `directory`. ValueError: a field is missing (spec of an older version)."""
        path = f"{directory}/{EXAMPLE_SPEC_FILE}"
        spec = json.loads(epath.Path(path).read_text())
        masking_fields = {field.name for field in dataclasses.fields(MaskingSettings)}
        try:
            masking = {"max_predictions_per_seq": spec["max_predictions_per_seq"], **spec.get("masking", {})}
            return cls(
                **{name: spec[name] for name in ("max_seq_length", "max_predictions_per_seq")},
                **{name: spec[name] for name in ("vocab_size", "vocabulary_sha256")},
                **{name: spec[name] for name in ("objective", "replay", SOURCE_RATES, EVAL_FRACTION) if name in spec},
                train_examples=spec["counts"]["train"]["instances"],
                eval_examples=spec["counts"]["eval"]["instances"],
                masking=MaskingSettings(**{k: v for k, v in masking.items() if k in masking_fields}),
                max_sequences=spec["max_sequences_per_pack"] if spec.get("packing") else cls.max_sequences,
            )
        except KeyError as missing:
            raise ValueError(f"{path} has no {missing}: make the examples again with this version") from missing


class Shard(NamedTuple):
    """Figures of a shard, recorded when it was written, so that training need not read it for them.

    `example_shards.json` is a list of them, for all splits, by path:

        {"path": "Split-train/examples-00003-of-00010.tfrecord", "pass_number": 0, "records": 1170, "size": 690012,
         "crc32c": "1c291ca3"}
    """

    path: str  # path of the file in the folder of the examples
    pass_number: int  # number of the pass over the documents, from 0. Each pass has all documents.
    records: int  # number of examples
    size: int  # file size in bytes
    crc32c: str  # checksum of the file, in hexadecimal digits
    # Name of the source of its documents (`bert_keras.data.mixture`); "", and not in the file, without names.
    source: str = ""


def read_shards(directory: str, split: str) -> list[Shard]:
    """The shards of a split, with full paths; InputError for the first file without its recorded size."""
    path = epath.Path(f"{directory}/{SHARDS_FILE}")
    if not path.exists():
        raise InputError(f"{directory} has no {SHARDS_FILE}: make the examples again with this version")
    shards = [Shard(**figures) for figures in json.loads(path.read_text())]
    folder = f"{directory}/Split-{split}"
    located = [shard._replace(path=f"{directory}/{shard.path}") for shard in shards]
    recorded = {shard.path: shard for shard in located if shard.path.startswith(f"{folder}/")}
    files = {name for name in files_in(folder) if not name.rpartition("/")[2].startswith(".")}
    # An object store takes tens of milliseconds per file.
    with concurrent.futures.ThreadPoolExecutor(64) as threads:
        sizes = dict(zip(files, threads.map(size_of, files), strict=True))
    for name in sorted(files | set(recorded)):
        if name not in recorded or sizes.get(name) != recorded[name].size:
            expected = f"{recorded[name].size} bytes" if name in recorded else "not listed"
            actual = f"{sizes[name]} bytes" if name in sizes else "missing"
            raise InputError(
                f"{name}: {actual}; {SHARDS_FILE}: {expected}. Restore the original folder, or make the examples again"
            )
    return [recorded[name] for name in sorted(recorded)]
