"""Shards of documents -> shards of pre-training examples, in Beam; loads without TFX.

A shard of documents is a bucket: the unit of work, of memory, of randomness and of output. Its examples
depend on its documents, its name, the split, the settings and the vocabulary alone, so the bytes are the same
for any number of workers.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import pickle
import posixpath
from collections.abc import Iterable, Iterator, Mapping

import apache_beam as beam
import numpy as np

from components.pretrain_example_gen.bucket import Bucket, Tokenizer
from components.pretrain_example_gen.encoding import encode_records
from components.pretrain_example_gen.instances import make_examples, plan_instances
from components.pretrain_example_gen.settings import ExampleSettings
from components.shards import read_documents, whole_file, write_json

DOCUMENTS_PREFIX = "documents-"
EXAMPLES_PREFIX = "examples-"

# What is counted of a shard, and summed over the shards of a split.
COUNTS = (
    # Of the documents, each once. Segments and documents without a token do not count.
    "documents",
    "segments",
    "tokens",
    "unknown_tokens",
    "single_segment_documents",  # nothing in them can follow their segment
    "documents_without_pair",  # alone in a shard, and of one segment: nsp=balanced has nothing to pair it with
    "cut_segments",  # too long for an example of the objective, and therefore cut into several segments
    # Of the examples: `instances` rows of `sequences` sequences, which is as many if they are not packed.
    "instances",
    "sequences",
    "duplicate_instances",  # sequences with the tokens of an earlier one of the same shard and pass, before masking
    "random_next",  # sequences
    "truncated",  # sequences from which tokens were taken off
    "real_tokens",  # special ones included, out of ...
    "slots",  # ... so many that they have, and ...
    "unpacked_slots",  # ... so many that they would have with a sequence a row
    # Predictions, told apart by what is shown: a random token that is [MASK] or the original counts as that.
    "masked",
    "masked_as_mask",
    "masked_as_same",
    "masked_as_random",
)


def examples_path(documents_path: str, output_dir: str) -> str:
    """documents-00003-of-00010.tfrecord -> OUTPUT_DIR/examples-00003-of-00010.tfrecord."""
    name = posixpath.basename(documents_path)
    if not name.startswith(DOCUMENTS_PREFIX):
        raise ValueError(f"{documents_path}: the name of a documents shard starts with {DOCUMENTS_PREFIX!r}")
    return f"{output_dir}/{EXAMPLES_PREFIX}{name.removeprefix(DOCUMENTS_PREFIX)}"


def _count_bucket(bucket: Bucket, unk_id: int) -> dict[str, int]:
    return {
        "documents": bucket.num_documents,
        "segments": bucket.num_segments,
        "tokens": len(bucket.tokens),
        "unknown_tokens": int((bucket.tokens == unk_id).sum()),
        "single_segment_documents": int((np.diff(bucket.document_splits) == 1).sum()),
    }


def _count_examples(examples: Mapping[str, np.ndarray], sequences: int, mask_id: int) -> dict[str, int]:
    rows, max_seq_length = examples["input_mask"].shape
    counts = {
        "instances": rows,
        "sequences": sequences,
        "real_tokens": int(np.count_nonzero(examples["input_mask"])),
        "slots": rows * max_seq_length,
        "unpacked_slots": sequences * max_seq_length,
    }
    if "next_sentence_labels" in examples:
        counts["random_next"] = int(np.count_nonzero(examples["next_sentence_labels"]))
    if "masked_lm_weights" in examples:
        is_prediction = examples["masked_lm_weights"] > 0
        labels = examples["masked_lm_ids"][is_prediction]
        shown = np.take_along_axis(examples["input_ids"], examples["masked_lm_positions"], axis=1)[is_prediction]
        is_mask, is_same = shown == mask_id, shown == labels
        counts["masked"] = len(labels)
        counts["masked_as_mask"] = int(is_mask.sum())
        counts["masked_as_same"] = int((is_same & ~is_mask).sum())
        counts["masked_as_random"] = int((~is_same & ~is_mask).sum())
    return counts


def sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Adds COUNTS up by name; a name that is missing counts 0."""
    total = dict.fromkeys(COUNTS, 0)
    for some in counts:
        for name, count in some.items():
            total[name] += count
    return total


def make_examples_shard(
    documents_path: str, tokenizer: Tokenizer, settings: ExampleSettings, split: str, output_dir: str
) -> dict[str, int]:
    """Makes the examples of one shard of documents; returns its COUNTS. No documents make an empty shard.

    Raises:
        ValueError: see `read_documents`, `examples_path`, `ExampleSettings.passes`, `Bucket`.
    """
    output_path = examples_path(documents_path, output_dir)
    passes = settings.passes(split)
    key = (settings.seed, split, posixpath.basename(documents_path))
    bucket = Bucket.from_documents(read_documents(documents_path), tokenizer)
    counts = [_count_bucket(bucket, tokenizer.unk_id)]
    plan = plan_instances(bucket, settings, passes, key, tokenizer.sep_id)
    num_instances = len(plan.instances)
    del bucket  # the plan may have tokens of its own
    fingerprints = [np.zeros(0, np.uint64)]
    # Not in the shard's own folder: TFX's components read every file there, dot files too.
    with whole_file(output_path, f"{output_dir}.part") as file:
        for examples, of_sequences in make_examples(plan, tokenizer, settings, split, key):
            counts.append(_count_examples(examples, len(of_sequences), tokenizer.mask_id))
            fingerprints.append(of_sequences)
            file.write(encode_records(examples))
    counts.append(
        {
            "documents_without_pair": counts[0]["documents"] if not num_instances else 0,
            "cut_segments": plan.cut_segments,
            "truncated": int(np.count_nonzero(plan.instances["truncated"])),
            "duplicate_instances": num_instances - len(np.unique(np.concatenate(fingerprints))),
        }
    )
    return sum_counts(counts)


class MakeExamplesShard(beam.DoFn):
    """Path of a documents shard -> writes the examples shard; yields its counts."""

    def __init__(self, tokenizer: Tokenizer, settings: ExampleSettings, split: str, output_dir: str):
        # Whatever its class, a tokenizer pickles as its vocabulary; its tables are made in `setup`.
        self.pickled_tokenizer = pickle.dumps(tokenizer)
        self.settings, self.split, self.output_dir = settings, split, output_dir

    def setup(self) -> None:
        self._tokenizer = pickle.loads(self.pickled_tokenizer)

    def process(self, documents_path: str) -> Iterator[dict[str, int]]:
        yield make_examples_shard(documents_path, self._tokenizer, self.settings, self.split, self.output_dir)


class MakePretrainExamples(beam.PTransform):
    """Paths of documents shards -> examples shards in `output_dir`, and one dict: COUNTS, summed.

    Args:
        tokenizer: itself, not the path of its vocabulary: workers may not see the file.
        settings: of the examples.
        split: `train`, or `eval`, which gets one pass; each has randomness of its own.
        output_dir: the folder of the split in the examples artifact.
    """

    def __init__(self, tokenizer: Tokenizer, settings: ExampleSettings, split: str, output_dir: str):
        super().__init__()
        self.make_shard = MakeExamplesShard(tokenizer, settings, split, output_dir)

    def expand(self, documents_paths):
        return (
            documents_paths
            # Without it the shards stay on the worker that listed them.
            | "SpreadShards" >> beam.Reshuffle()
            | "MakeShard" >> beam.ParDo(self.make_shard)
            | "Sum" >> beam.CombineGlobally(sum_counts)
        )


def write_example_spec(
    path: str,
    settings: ExampleSettings,
    *,
    vocabulary_sha256: str,
    vocab_size: int,
    unicode_version: str,
    counts: Mapping[str, Mapping[str, int]],
) -> None:
    """Writes `example_spec.json`; `bert_keras.features.ExampleSpec` is what training reads of it.

    It holds all settings by their names. `max_predictions_per_seq` is of a row, beside that of a sequence in `masking`;
    they differ if rows are packed.

    Args:
        counts: split -> COUNTS, summed over its shards.
    """
    write_json(
        path,
        {
            **dataclasses.asdict(settings),
            "max_predictions_per_seq": settings.layout.max_predictions_per_seq,
            "vocab_size": vocab_size,
            "vocabulary_sha256": vocabulary_sha256,
            "unicode_version": unicode_version,
            "package_version": importlib.metadata.version("bert-tfx"),
            "counts": {split: dict(of_split) for split, of_split in counts.items()},
        },
    )
