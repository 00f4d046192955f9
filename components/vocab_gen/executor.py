"""VocabGen's artifact I/O."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
import tensorflow as tf
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils

from components.vocab_gen.settings import VocabularySettings
from components.vocab_gen.transforms import MakeVocabulary


class Executor(base_beam_executor.BaseBeamExecutor):
    """Learns from the `train` split alone: held-out text has no say in the vocabulary."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        train = artifact_utils.get_split_uri(input_dict["documents"], "train")
        settings = VocabularySettings(**json.loads(exec_properties["settings"]))
        output_dir = artifact_utils.get_single_uri(output_dict["vocabulary"])
        tf.io.gfile.makedirs(output_dir)
        with self._make_beam_pipeline() as pipeline:
            (
                pipeline
                | "Shards" >> beam.Create(sorted(tf.io.gfile.glob(f"{train}/*.tfrecord")))
                | "MakeVocabulary" >> MakeVocabulary(output_dir, exec_properties["vocab_size"], settings)
            )
