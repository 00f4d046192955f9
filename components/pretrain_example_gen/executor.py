"""PretrainExampleGen's artifact I/O."""

from __future__ import annotations

import posixpath
from typing import Any

import apache_beam as beam
import tensorflow as tf
from pydantic import TypeAdapter
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils

from bert_keras.features import EXAMPLE_SPEC_FILE, VOCABULARY_FILE, VOCABULARY_SPEC_FILE, read_vocabulary
from components.pretrain_example_gen.settings import EVAL, TRAIN, ExampleSettings
from components.pretrain_example_gen.transforms import MakePretrainExamples, write_example_spec
from components.shards import remove_temporary


class Executor(base_beam_executor.BaseBeamExecutor):
    """Makes the examples of every split; copies the vocabulary beside them, so that they can be read alone."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        examples = artifact_utils.get_single_instance(output_dict["examples"])
        examples.splits = [TRAIN, EVAL]
        settings = TypeAdapter(ExampleSettings).validate_json(exec_properties["settings"])
        vocabulary_dir = artifact_utils.get_single_uri(input_dict["vocabulary"])
        tf.io.gfile.makedirs(examples.uri)
        for name in (VOCABULARY_FILE, VOCABULARY_SPEC_FILE):
            tf.io.gfile.copy(posixpath.join(vocabulary_dir, name), posixpath.join(examples.uri, name), overwrite=True)
        vocabulary, spec = read_vocabulary(examples.uri)

        def write_spec(pairs) -> None:
            write_example_spec(
                posixpath.join(examples.uri, EXAMPLE_SPEC_FILE),
                settings,
                vocabulary_sha256=spec["vocabulary_sha256"],
                vocab_size=spec["vocab_size"],
                unicode_version=spec["unicode_version"],
                counts=dict(pairs),
            )

        with self._make_beam_pipeline() as pipeline:
            counts = []
            for split in (TRAIN, EVAL):
                documents = artifact_utils.get_split_uri(input_dict["documents"], split)
                output_dir = artifact_utils.get_split_uri([examples], split)
                tf.io.gfile.makedirs(output_dir)
                counts.append(
                    pipeline
                    | f"Documents[{split}]" >> beam.Create(sorted(tf.io.gfile.glob(f"{documents}/*.tfrecord")))
                    | f"Make[{split}]"
                    >> MakePretrainExamples(vocabulary, spec["lower_case"], settings, split, output_dir)
                    | f"Name[{split}]" >> beam.Map(lambda counted, split: (split, counted), split)
                )
            (
                counts
                | "AllSplits" >> beam.Flatten()
                | "Together" >> beam.combiners.ToList()
                | "WriteSpec" >> beam.Map(write_spec)
            )
        remove_temporary(examples.uri)
