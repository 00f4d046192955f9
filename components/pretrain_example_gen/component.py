"""PretrainExampleGen: makes pre-training examples from documents and a vocabulary."""

from typing import Any

from pydantic import TypeAdapter
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils, standard_artifacts

from components.artifacts import Vocabulary
from components.io.shards import remove_temporary
from components.pretrain_example_gen.settings import EVAL, TRAIN, ExampleSettings
from components.pretrain_example_gen.transforms import generate_examples
from components.stage import Stage


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


class PretrainExampleGen(
    Stage,
    executor=Executor,
    inputs={"documents": standard_artifacts.Examples, "vocabulary": Vocabulary},
    parameters={"settings": str, "replay": int, "code": str},
    outputs={"examples": standard_artifacts.Examples},
):
    """Makes `examples` (the splits of `documents`); with `replay`, those that training mixes into the others."""
