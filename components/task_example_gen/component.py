"""TaskExampleGen: reads a task's official files into rows."""

import json
from typing import Any

from pydantic import TypeAdapter
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils, standard_artifacts

from bert_keras.tasks.table import task_of
from components.io.shards import remove_temporary
from components.stage import Stage
from components.task_example_gen.generate import generate_rows
from components.task_example_gen.settings import TaskDataSettings
from components.task_example_gen.split_files import SPLITS


class Executor(base_executor.BaseExecutor):
    """Reads the files of the `files` property into rows, in this process, since the data sets are small."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        examples = artifact_utils.get_single_instance(output_dict["examples"])
        settings = TypeAdapter(TaskDataSettings).validate_json(exec_properties["settings"])
        files = json.loads(exec_properties["files"])
        spec = generate_rows(task_of(exec_properties["task"]), files, settings, examples.uri)
        examples.splits = [split for split in SPLITS if split in spec.counts]
        remove_temporary(examples.uri, SPLITS)


class TaskExampleGen(
    Stage,
    executor=Executor,
    inputs={},
    parameters={"task": str, "files": str, "fingerprint": str, "settings": str, "code": str},
    outputs={"examples": standard_artifacts.Examples},
):
    """Reads files into `examples` (`TaskRow`s; always train and eval, other splits if they exist).

    `files` are the paths of each split, `fingerprint` the hash of their names and contents.
    """
