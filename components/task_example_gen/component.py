"""TaskExampleGen: reads a task's official files into rows."""

from __future__ import annotations

from tfx.types import standard_artifacts

from components.stage import Stage
from components.task_example_gen.executor import Executor


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
