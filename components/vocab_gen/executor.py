"""Executor of VocabGen: reads and writes its artifacts."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
from pydantic import TypeAdapter
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils

from bert_keras.errors import InputError
from components.io.shards import shard_paths
from components.vocab_gen.files import given_tokenizer, import_vocabulary
from components.vocab_gen.settings import VocabularySettings
from components.vocab_gen.transforms import MakeVocabulary


class Executor(base_beam_executor.BaseBeamExecutor):
    """Learns from the `train` split only, imports the given vocabulary, or extends it by words of the `train` split."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        settings = TypeAdapter(VocabularySettings).validate_json(exec_properties["settings"])
        output_dir = artifact_utils.get_single_uri(output_dict["vocabulary"])
        wanted = exec_properties["vocab_size"]
        given, initial = json.loads(exec_properties["given"]), None
        if given and settings.extend:
            initial = given_tokenizer(given["path"], settings)
        elif given:
            size = import_vocabulary(given["path"], output_dir, settings)
            if size != wanted:
                raise InputError(f"{given['path']}: has {size:,} tokens, not {wanted}; --set model.vocab_size={size}")
            return
        train = artifact_utils.get_split_uri(input_dict["documents"], "train")
        with self._make_beam_pipeline() as pipeline:
            _ = (
                pipeline
                | "Shards" >> beam.Create(shard_paths(train))
                | "MakeVocabulary" >> MakeVocabulary(output_dir, wanted, settings, exact=True, initial=initial)
            )
