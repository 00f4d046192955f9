"""Executor of PretrainExampleGen: reads and writes its artifacts."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils

from components.io.shards import remove_temporary
from components.pretrain_example_gen.generate import generate_examples
from components.pretrain_example_gen.settings import EVAL, TRAIN, ExampleSettings


class Executor(base_beam_executor.BaseBeamExecutor):
    """Makes the examples of every split; copies the vocabulary, so that they can be read without other artifacts."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        examples = artifact_utils.get_single_instance(output_dict["examples"])
        examples.splits = [TRAIN, EVAL]
        settings = TypeAdapter(ExampleSettings).validate_json(exec_properties["settings"])
        documents_dir = artifact_utils.get_single_uri(input_dict["documents"])
        vocabulary_dir = artifact_utils.get_single_uri(input_dict["vocabulary"])
        with self._make_beam_pipeline() as pipeline:
            replay = bool(exec_properties["replay"])
            generate_examples(pipeline, documents_dir, vocabulary_dir, settings, examples.uri, replay)
        remove_temporary(examples.uri, (TRAIN, EVAL))
