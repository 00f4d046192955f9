"""TaskExampleGen: reads a task's official files into rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfx.types import standard_artifacts

from bert_keras.tasks.table import Task
from components.corpus_gen.inputs import fingerprint
from components.stage import Stage
from components.task_example_gen.executor import Executor
from components.task_example_gen.settings import TaskDataSettings
from components.task_example_gen.split_files import input_files


class TaskExampleGen(
    Stage,
    executor=Executor,
    inputs={},
    parameters={"task": str, "files": str, "fingerprint": str, "settings": str, "code": str},
    outputs={"examples": standard_artifacts.Examples},
):
    """Reads files into `examples` (`TaskRow`s; always train and eval, other splits if they exist)."""

    def __init__(self, task: Task, files: Mapping[str, Sequence[str]], settings: TaskDataSettings):
        paths = {split: list(paths) for split, paths in files.items()}
        super().__init__(task.name, paths, fingerprint(input_files(files)), settings)
