"""Makes the examples of every split, and their spec, from documents and a vocabulary, with or without TFX."""

from __future__ import annotations

import apache_beam as beam

from components.io.shards import shard_paths
from components.pretrain_example_gen.settings import EVAL, TRAIN, ExampleSettings
from components.pretrain_example_gen.transforms import MakeExamplesShard, write_example_spec
from components.vocab_gen.files import copy_vocabulary, load_tokenizer


def generate_examples(
    pipeline: beam.Pipeline,
    documents_dir: str,
    vocabulary_dir: str,
    settings: ExampleSettings,
    output_dir: str,
    replay: bool = False,
) -> None:
    """Add the stages that make examples in `output_dir`: shards, their spec, and the vocabulary.

    Call `components.io.shards.remove_temporary` after the pipeline has run.

    Args:
        documents_dir: output of `components.corpus_gen.transforms.generate_documents`.
        vocabulary_dir: contains vocab.txt and vocab_spec.json; may be `output_dir`.
        replay: whether training mixes them into other examples.
    """
    if vocabulary_dir != output_dir:
        # Makes the examples readable without other artifacts.
        copy_vocabulary(vocabulary_dir, output_dir)
    tokenizer, spec = load_tokenizer(output_dir)
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
        | "WriteSpec"
        >> beam.Map(
            lambda made: write_example_spec(
                output_dir,
                settings,
                made,
                vocabulary_sha256=spec["vocabulary_sha256"],
                vocab_size=spec["vocab_size"],
                unicode_version=spec["unicode_version"],
                replay=replay,
            )
        )
    )
