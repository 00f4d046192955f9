"""Documents and a vocabulary -> the examples of every split and their spec: one stage, for TFX and without it."""

from __future__ import annotations

import apache_beam as beam

from bert_keras.features import EXAMPLE_SPEC_FILE
from components.pretrain_example_gen.settings import EVAL, TRAIN, ExampleSettings
from components.pretrain_example_gen.transforms import MakePretrainExamples, write_example_spec
from components.shards import shard_paths
from components.vocab_gen.files import copy_vocabulary, load_tokenizer


def generate_examples(
    pipeline: beam.Pipeline, documents_dir: str, vocabulary_dir: str, settings: ExampleSettings, output_dir: str
) -> None:
    """Adds to `pipeline` what makes examples of documents in `output_dir`: shards, their spec, and the vocabulary.

    Call `components.shards.remove_temporary` when it has run.

    Args:
        documents_dir: what `components.corpus_gen.transforms.generate_documents` wrote.
        vocabulary_dir: vocab.txt and vocab_spec.json; may be `output_dir`.
    """
    if vocabulary_dir != output_dir:
        # Examples can then be read alone.
        copy_vocabulary(vocabulary_dir, output_dir)
    tokenizer, spec = load_tokenizer(output_dir)
    counts = []
    for split in (TRAIN, EVAL):
        counts.append(
            pipeline
            | f"Documents[{split}]" >> beam.Create(shard_paths(f"{documents_dir}/Split-{split}"), reshuffle=False)
            | f"Make[{split}]" >> MakePretrainExamples(tokenizer, settings, split, f"{output_dir}/Split-{split}")
            | f"Name[{split}]" >> beam.Map(lambda counted, split: (split, counted), split)
        )
    _ = (
        counts
        | "AllSplits" >> beam.Flatten()
        | "Together" >> beam.combiners.ToList()
        | "WriteSpec"
        >> beam.Map(
            lambda pairs: write_example_spec(
                f"{output_dir}/{EXAMPLE_SPEC_FILE}",
                settings,
                vocabulary_sha256=spec["vocabulary_sha256"],
                vocab_size=spec["vocab_size"],
                unicode_version=spec["unicode_version"],
                counts=dict(pairs),
            )
        )
    )
