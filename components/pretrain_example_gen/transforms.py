"""Shards of documents -> shards of pre-training examples, in Beam; loads without TFX.

A shard of documents is a bucket: the unit of work, of memory, of randomness and of output. Its examples
depend on its documents, its name, the split, the settings and the vocabulary alone, so the bytes are the same
for any number of workers.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np

from bert_keras.tokenizer import BertTokenizer
from components.pretrain_example_gen.encoding import encode_examples
from components.pretrain_example_gen.instances import Bucket, make_examples, plan_instances, random_stream
from components.pretrain_example_gen.settings import ExampleSettings
from components.shards import read_documents, write_json, write_shard

DOCUMENTS_PREFIX = "documents-"
EXAMPLES_PREFIX = "examples-"

# What is counted of a shard, and summed over the shards of a split. Empty segments and documents do not
# count. Tokens are those of the documents, once; real_tokens are those of the examples, special ones
# included, out of so many slots. Masked tokens are told apart by what the examples show: a random token that
# is [MASK] or the original counts as that.
COUNTS = (
    "documents",
    "segments",
    "tokens",
    "unknown_tokens",
    "instances",
    "random_next",
    "truncated",
    "real_tokens",
    "slots",
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


def _count_examples(examples: Mapping[str, np.ndarray], mask_id: int) -> dict[str, int]:
    is_prediction = examples["masked_lm_weights"] > 0
    labels = examples["masked_lm_ids"][is_prediction]
    shown = np.take_along_axis(examples["input_ids"], examples["masked_lm_positions"], axis=1)[is_prediction]
    return {
        "instances": len(examples["input_ids"]),
        "random_next": int(examples["next_sentence_labels"].sum()),
        "real_tokens": int(examples["input_mask"].sum()),
        "slots": examples["input_mask"].size,
        "masked": len(labels),
        "masked_as_mask": int((shown == mask_id).sum()),
        "masked_as_same": int(((shown == labels) & (shown != mask_id)).sum()),
        "masked_as_random": int(((shown != labels) & (shown != mask_id)).sum()),
    }


def sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Adds COUNTS up by name; a name that is missing counts 0."""
    total = dict.fromkeys(COUNTS, 0)
    for some in counts:
        for name, count in some.items():
            total[name] += count
    return total


def make_examples_shard(
    documents_path: str, tokenizer: BertTokenizer, settings: ExampleSettings, split: str, output_dir: str
) -> dict[str, int]:
    """Makes the examples of one shard of documents; returns its COUNTS. No documents make an empty shard.

    Raises:
        ValueError: see `read_documents`, `examples_path`, `ExampleSettings.passes`.
    """
    output_path = examples_path(documents_path, output_dir)
    passes = settings.passes(split)
    key = (settings.seed, split, posixpath.basename(documents_path))
    bucket = Bucket.from_documents(read_documents(documents_path), tokenizer)
    plan = plan_instances(bucket, settings, passes, key)
    counts = [
        {
            "documents": len(bucket.document_splits) - 1,
            "segments": len(bucket.segment_splits) - 1,
            "tokens": len(bucket.tokens),
            "unknown_tokens": int((bucket.tokens == tokenizer.unk_id).sum()),
            "truncated": int((plan["dropped"] > 0).sum()),
        }
    ]

    def records() -> Iterator[bytes]:
        for examples in make_examples(bucket, plan, tokenizer, settings, random_stream(*key, "masking")):
            counts.append(_count_examples(examples, tokenizer.mask_id))
            yield from encode_examples(examples)

    write_shard(output_path, records())
    return sum_counts(counts)


class MakeExamplesShard(beam.DoFn):
    """Path of a documents shard -> writes the examples shard; yields its counts."""

    def __init__(
        self,
        vocabulary: Sequence[str],
        lower_case: bool,
        settings: ExampleSettings,
        split: str,
        output_dir: str,
    ):
        self.vocabulary, self.lower_case = tuple(vocabulary), lower_case
        self.settings, self.split, self.output_dir = settings, split, output_dir

    def setup(self) -> None:
        self._tokenizer = BertTokenizer(self.vocabulary, self.lower_case)

    def process(self, documents_path: str) -> Iterator[dict[str, int]]:
        yield make_examples_shard(documents_path, self._tokenizer, self.settings, self.split, self.output_dir)


class MakePretrainExamples(beam.PTransform):
    """Paths of documents shards -> examples shards in `output_dir`, and one dict: COUNTS, summed.

    Args:
        vocabulary: tokens in the order of their ids (not their path: workers may not see the file).
        lower_case: what the vocabulary was made with.
        settings: of the examples.
        split: `train`, or `eval`, which gets one pass; each has randomness of its own.
        output_dir: the folder of the split in the examples artifact.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        lower_case: bool,
        settings: ExampleSettings,
        split: str,
        output_dir: str,
    ):
        super().__init__()
        self.make_shard = MakeExamplesShard(vocabulary, lower_case, settings, split, output_dir)

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

    Args:
        counts: split -> COUNTS, summed over its shards.
    """
    masking = dataclasses.asdict(settings.masking)
    write_json(
        path,
        {
            "objective": "mlm_nsp",
            "max_seq_length": settings.max_seq_length,
            "max_predictions_per_seq": masking.pop("max_predictions_per_seq"),
            "dupe_factor": settings.dupe_factor,
            "short_seq_prob": settings.short_seq_prob,
            "seed": settings.seed,
            # Static: the shards hold masked ids. Dynamic masking would mask while reading.
            "masking": {"kind": "static", **masking},
            "vocab_size": vocab_size,
            "vocabulary_sha256": vocabulary_sha256,
            "unicode_version": unicode_version,
            "package_version": importlib.metadata.version("bert-tfx"),
            "counts": {split: dict(of_split) for split, of_split in counts.items()},
        },
    )
