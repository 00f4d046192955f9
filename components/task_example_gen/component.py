"""TaskExampleGen: reads a task's official files into rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import channel, component_spec, standard_artifacts

from bert_keras.tasks.table import Task
from components.code_version import code_fingerprint
from components.corpus_gen.inputs import fingerprint
from components.task_example_gen.executor import Executor
from components.task_example_gen.settings import TaskDataSettings
from components.task_example_gen.split_files import input_files


class TaskExampleGenSpec(component_spec.ComponentSpec):
    """`task`: name of the task; `files`: JSON {split: [path]}; `fingerprint`: hash of their contents.

    `settings`: JSON of `TaskDataSettings`.
    """

    PARAMETERS = {
        "task": component_spec.ExecutionParameter(type=str),
        "files": component_spec.ExecutionParameter(type=str),
        "fingerprint": component_spec.ExecutionParameter(type=str),
        "settings": component_spec.ExecutionParameter(type=str),
        "code": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {}
    OUTPUTS = {"examples": component_spec.ChannelParameter(type=standard_artifacts.Examples)}


class TaskExampleGen(base_component.BaseComponent):
    """Reads files into `examples` (Examples of `TaskRow`s; always train and eval, other splits if they exist)."""

    SPEC_CLASS = TaskExampleGenSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(self, task: Task, files: Mapping[str, Sequence[str]], settings: TaskDataSettings):
        spec = TaskExampleGenSpec(
            task=task.name,
            files=json.dumps({split: list(paths) for split, paths in files.items()}, sort_keys=True),
            fingerprint=fingerprint(input_files(files)),
            settings=json.dumps(dataclasses.asdict(settings), sort_keys=True),
            code=code_fingerprint(__name__),
            examples=channel.Channel(type=standard_artifacts.Examples),
        )
        super().__init__(spec=spec)
