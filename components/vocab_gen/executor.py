"""VocabGen's artifact I/O."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
from pydantic import TypeAdapter
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils

from bert_keras.errors import InputError
from components.shards import shard_paths
from components.vocab_gen.files import bring_vocabulary
from components.vocab_gen.settings import VocabularySettings
from components.vocab_gen.transforms import MakeVocabulary


class Executor(base_beam_executor.BaseBeamExecutor):
    """Learns from the `train` split alone, held-out text has no say; or takes the vocabulary that is given."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        settings = TypeAdapter(VocabularySettings).validate_json(exec_properties["settings"])
        output_dir = artifact_utils.get_single_uri(output_dict["vocabulary"])
        wanted = exec_properties["vocab_size"]
        if given := json.loads(exec_properties["given"]):
            size = bring_vocabulary(given["path"], output_dir, settings)
            if size != wanted:
                raise InputError(
                    f"{given['path']}: has {size:,} tokens, --set model.vocab_size={size} fits them, not {wanted}"
                )
            return
        train = artifact_utils.get_split_uri(input_dict["documents"], "train")
        with self._make_beam_pipeline() as pipeline:
            _ = (
                pipeline
                | "Shards" >> beam.Create(shard_paths(train))
                | "MakeVocabulary" >> MakeVocabulary(output_dir, wanted, settings, exact=True)
            )
