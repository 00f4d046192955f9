"""The notices (`bert_keras.notices`) of a run: those of its inputs, and those of each stage, also of a cached one.

RUN_DIR/notices/RUN.NODE.jsonl          of a stage that has not finished; without a NODE, of the run's inputs
RUN_DIR/notices/artifact-ID.NODE.jsonl  of the stage that made this artifact, its first one
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bert_keras.notices import recorded
from pipeline.runs.run_dir import notices_dir

if TYPE_CHECKING:
    from pipeline.runs.lineage import Run, Stage


def notices_file(run_dir: str, run_name: str, node: str = "") -> str:
    """The file to record in while a node runs, or while inputs are read."""
    return os.path.join(notices_dir(run_dir), f"{run_name}.{node}.jsonl")


def keep_notices(run_dir: str, run: Run, node: str) -> None:
    """Name the notices of a finished stage by its output, by which a later run that takes it from the cache finds them.

    A stage from the cache has none of its own.
    """
    path, output_path = notices_file(run_dir, run.id, node), _file_of_output(run_dir, run.stages[node])
    if output_path and os.path.exists(path):
        os.replace(path, output_path)


def notices_of(run: Run, run_dir: str) -> list[str]:
    """The notices of a run and of the earlier runs whose outputs it uses, each once."""
    paths = [notices_file(run_dir, run.id), *(_file_of_output(run_dir, stage) for stage in run.stages.values())]
    return list(dict.fromkeys(notice for path in paths for notice in recorded(path)))


def _file_of_output(run_dir: str, stage: Stage) -> str:
    """Its path; empty for a stage without outputs. The resolver's output is another stage's."""
    ids = [artifact.id for artifacts in stage.outputs.values() for artifact in artifacts]
    return os.path.join(notices_dir(run_dir), f"artifact-{min(ids)}.{stage.name}.jsonl") if ids else ""
