"""Beam transforms from shards of documents to shards of pre-training examples; does not import TFX.

A shard of documents is a bucket: the unit of work, of memory and of randomness. Each pass over it gives a shard of
examples, so that training can read every document once before reading any again. The examples depend only on the
bucket's documents, its name, the split, the settings and the vocabulary, so the bytes are the same for any number of
workers.
"""

from __future__ import annotations  # Beam would take them for its types

import dataclasses
import importlib.metadata
import pickle
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import apache_beam as beam
import google_crc32c
import numpy as np

from bert_keras.data.example_format import (
    EVAL_FRACTION,
    EXAMPLE_SPEC_FILE,
    SEPARATED,
    SHARDS_FILE,
    SOURCE,
    SOURCE_RATES,
    Shard,
)
from bert_keras.notices import notify
from bert_keras.tokenizers.protocol import Tokenizer
from components.io.shards import COUNTS_FILE, read_documents, read_json, shard_name, shard_paths, whole_file, write_json
from components.pretrain_example_gen.instances import key_of_pass, make_examples, plan_passes
from components.pretrain_example_gen.settings import EVAL, TRAIN, ExampleSettings
from components.pretrain_example_gen.tf_example_encoder import encode_records
from components.pretrain_example_gen.tokenized_shard import Bucket
from components.vocab_gen.files import copy_vocabulary, load_tokenizer

_DOCUMENTS_NAME = re.compile(r"documents-(\d+)-of-(\d+)(?:-(\w+))?\.tfrecord")

# For a shard of documents: its split, its COUNTS, and the shards of its examples.
Made = tuple[str, Mapping[str, int], list[Shard]]

# Share of the documents that may be alone in their shard without a notice.
_MAX_ALONE = 0.05

# Counts of a shard, which are summed over the shards of a split.
COUNTS = (
    # Of documents, each counted once, without segments and documents that have no token.
    "documents",
    "segments",
    "tokens",
    "words",  # tokens that do not continue another
    "unknown_tokens",
    "single_segment_documents",  # nothing in them can follow their segment
    "documents_without_pair",  # of one segment, alone in a shard: nsp=balanced cannot pair them
    "cut_segments",  # too long for an example of the objective
    # Of examples: `instances` rows of `sequences` sequences; both are equal without packing.
    "instances",
    "sequences",
    "duplicate_instances",  # sequences with the tokens of an earlier one of the same shard and pass, before masking
    "random_next",  # sequences
    "truncated",  # sequences from which tokens were removed
    "real_tokens",  # including special ones, out of ...
    "slots",  # ... all positions, and ...
    "unpacked_slots",  # ... all positions there would be with one sequence per row
    # Predictions by input token: a random token that is [MASK] or the original counts as that.
    "masked",
    "masked_as_mask",
    "masked_as_same",
    "masked_as_random",
)


def examples_path(documents_path: str, output_dir: str, number: int, passes: int) -> str:
    """documents-00003-of-00010.tfrecord, pass 2 of 5 (from 0) -> OUTPUT_DIR/examples-00023-of-00050.tfrecord.

    Those of a source, documents-00003-of-00010-web.tfrecord, keep its name.
    """
    index, count, source_name = _parts_of_name(documents_path)
    return f"{output_dir}/{shard_name('examples', number * count + index, passes * count, source_name)}"


def _parts_of_name(documents_path: str) -> tuple[int, int, str]:
    """documents-00003-of-00010-web.tfrecord -> 3, 10, "web"; without a source ""."""
    if not (match := _DOCUMENTS_NAME.fullmatch(posixpath.basename(documents_path))):
        raise ValueError(f"{documents_path}: a documents shard is called documents-NUMBER-of-COUNT.tfrecord")
    index, count, source_name = match.groups()
    return int(index), int(count), source_name or ""


def _count_bucket(bucket: Bucket, tokenizer: Tokenizer) -> dict[str, int]:
    return {
        "documents": bucket.num_documents,
        "segments": bucket.num_segments,
        "tokens": len(bucket.tokens),
        "words": int(np.count_nonzero(~tokenizer.is_suffix[bucket.tokens])),
        "unknown_tokens": int((bucket.tokens == tokenizer.unk_id).sum()),
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
    """Sum COUNTS by name; missing names count 0."""
    total = sum(map(Counter, counts), Counter())
    return {name: total[name] for name in COUNTS}


def make_examples_shards(
    documents_path: str, tokenizer: Tokenizer, settings: ExampleSettings, split: str, output_dir: str
) -> tuple[dict[str, int], list[Shard]]:
    """Make the examples of one shard of documents, one shard per pass; returns COUNTS and the shards' figures.

    Without documents the shards are empty. ValueError as in `read_documents`, `examples_path` and `Bucket`.
    """
    passes = settings.passes(split)
    paths = [examples_path(documents_path, output_dir, number, passes) for number in range(passes)]
    key = (settings.seed, split, posixpath.basename(documents_path))
    source_name = _parts_of_name(documents_path)[2]
    bucket = Bucket.from_documents(read_documents(documents_path), tokenizer, settings.objective in SEPARATED)
    counts = [_count_bucket(bucket, tokenizer)]
    plans = plan_passes(bucket, settings, passes, key, tokenizer.sep_id, tokenizer.pair_separators)
    del bucket  # the plans may have their own tokens
    shards = []
    for number, (path, plan) in enumerate(zip(paths, plans, strict=True)):
        records = size = crc = 0
        fingerprints = [np.zeros(0, np.uint64)]
        # Not in the shard's own folder: TFX's components read every file there, including dot files.
        with whole_file(path, f"{output_dir}.part") as file:
            for examples, of_sequences in make_examples(plan, tokenizer, settings, split, key_of_pass(key, number)):
                counts.append(_count_examples(examples, len(of_sequences), tokenizer.mask_id))
                if source_name and split == EVAL:
                    examples[SOURCE] = np.full((counts[-1]["instances"], 1), source_name.encode())
                fingerprints.append(of_sequences)
                encoded = encode_records(examples)
                file.write(encoded)
                records += counts[-1]["instances"]
                size += len(encoded)
                crc = google_crc32c.extend(crc, encoded)
        relative = f"{posixpath.basename(output_dir)}/{posixpath.basename(path)}"
        shards.append(Shard(relative, number, records, size, f"{crc:08x}", source_name))
        duplicates = len(plan.instances) - len(np.unique(np.concatenate(fingerprints)))
        truncated = int(np.count_nonzero(plan.instances["truncated"]))
        counts.append({"truncated": truncated, "duplicate_instances": duplicates})
    # Segments are cut once for all passes.
    counts.append({"cut_segments": plan.cut_segments})
    if not any(shard.records for shard in shards):
        counts.append({"documents_without_pair": counts[0]["documents"]})
    return sum_counts(counts), shards


class MakeExamplesShard(beam.DoFn):
    """Path of a documents shard -> shards of its examples in the folder of their split; yields `Made`."""

    def __init__(self, tokenizer: Tokenizer, settings: ExampleSettings, split: str, output_dir: str):
        # Not a path: workers may not have the file. A tokenizer pickles as its vocabulary; `setup` builds its tables.
        self.pickled_tokenizer = pickle.dumps(tokenizer)
        self.settings, self.split, self.output_dir = settings, split, output_dir

    def setup(self) -> None:
        self._tokenizer = pickle.loads(self.pickled_tokenizer)

    def process(self, documents_path: str) -> Iterator[Made]:
        made = make_examples_shards(documents_path, self._tokenizer, self.settings, self.split, self.output_dir)
        yield (self.split, *made)


def write_example_spec(
    output_dir: str,
    settings: ExampleSettings,
    made: Iterable[Made],
    vocabulary: Mapping[str, object],
    replay: bool = False,
    documents: Mapping[str, object] | None = None,
) -> None:
    """Write `example_shards.json` and, last, `example_spec.json`, whose existence shows that the examples are complete.

    Training reads them as `Shard` and `ExampleSpec` (`bert_keras.data.example_format`). The spec contains all settings
    by name. `max_predictions_per_seq` is per row, and per sequence in `masking`; they differ if rows are packed.
    `counts` are by split; `sources` has them for each source that has a name. `vocabulary` is the spec of the
    vocabulary, `documents` the content of `corpus.json`, which has the held-out share and the sources' rates.
    """
    made = list(made)
    shards = sorted(shard for _, _, of_documents in made for shard in of_documents)
    figures = [{name: value for name, value in shard._asdict().items() if value != ""} for shard in shards]
    write_json(f"{output_dir}/{SHARDS_FILE}", figures)
    names = sorted({shard.source for shard in shards} - {""})

    def counted(source_name: str | None = None) -> dict[str, dict[str, int]]:
        # All shards of the same documents have the same source.
        by_split: dict[str, list[Mapping[str, int]]] = {TRAIN: [], EVAL: []}
        for split, counts, of_documents in made:
            if source_name is None or of_documents[0].source == source_name:
                by_split[split].append(counts)
        return {split: sum_counts(counts) for split, counts in by_split.items()}

    for name in (names or [""]) if settings.objective == "mlm_nsp" else []:
        sizes = [counts["documents"] for split, counts, of in made if split == TRAIN and of and of[0].source == name]
        if len(sizes) > 1 and (alone := sizes.count(1)) > _MAX_ALONE * sum(sizes):
            what = f"source {name}" if name else "replayed text" if replay else "the corpus"
            notify(
                f"{what}: {alone:,} of {sum(sizes):,} documents are alone in "
                "their shard, where no other document has a random next sentence for them: raise corpus.bucket_bytes"
            )
    write_json(
        f"{output_dir}/{EXAMPLE_SPEC_FILE}",
        {
            **dataclasses.asdict(settings),
            **({"replay": True} if replay else {}),
            "max_predictions_per_seq": settings.layout.max_predictions_per_seq,
            **{name: vocabulary[name] for name in ("vocab_size", "vocabulary_sha256", "unicode_version")},
            "package_version": importlib.metadata.version("bert-tfx"),
            "counts": counted(),
            **({"sources": {name: counted(name) for name in names}} if names else {}),
            **{name: documents[name] for name in (EVAL_FRACTION, SOURCE_RATES) if documents and name in documents},
        },
    )


def generate_examples(
    pipeline: beam.Pipeline,
    documents_dir: str,
    vocabulary_dir: str,
    settings: ExampleSettings,
    output_dir: str,
    replay: bool = False,
) -> None:
    """Add the stages that make examples in `output_dir`: shards, their spec, and the vocabulary.

    `vocabulary_dir` may be `output_dir`. `replay`: training mixes them into other examples. Call
    `components.io.shards.remove_temporary` after the pipeline has run.
    """
    if vocabulary_dir != output_dir:
        # Makes the examples readable without other artifacts.
        copy_vocabulary(vocabulary_dir, output_dir)
    tokenizer, spec = load_tokenizer(output_dir)
    documents = read_json(f"{documents_dir}/{COUNTS_FILE}")
    made = [
        pipeline
        | f"Documents[{split}]" >> beam.Create(shard_paths(f"{documents_dir}/Split-{split}"), reshuffle=False)
        | f"Spread[{split}]" >> beam.Reshuffle()  # else the shards stay on the worker that listed them
        | f"Make[{split}]" >> beam.ParDo(MakeExamplesShard(tokenizer, settings, split, f"{output_dir}/Split-{split}"))
        for split in (TRAIN, EVAL)
    ]
    _ = (
        made
        | "AllSplits" >> beam.Flatten()
        | "Together" >> beam.combiners.ToList()
        | "WriteSpec" >> beam.Map(lambda made: write_example_spec(output_dir, settings, made, spec, replay, documents))
    )
