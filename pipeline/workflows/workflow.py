"""A workflow: inputs, pipeline, summary and report of one kind of run.

This module imports quickly: the workflows import TFX when they compile, summarize or render.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.runs.request import RunRequest
from pipeline.workflows.finetune import FineTuneWorkflow
from pipeline.workflows.pretrain import PretrainWorkflow

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline

    from pipeline.runs.lineage import Run


class Workflow(Protocol):
    """One kind of run. A third kind needs a third class, and a row of `WORKFLOWS`.

    Attributes:
        name: name of its command; recipes and `summary.json` name their workflow.
        inputs: the fields of `RunRequest` that this workflow has, besides those of every workflow.
        tuned: parameters of a Kubeflow pipeline, and the setting of each.
    """

    name: str
    inputs: tuple[str, ...]
    tuned: Mapping[str, str]

    def find_inputs(self, request: RunRequest) -> Any:
        """Find the files of a request.

        Raises:
            InputError: an unusable recipe, setting or path.
        """

    def parameters(self, request: RunRequest) -> dict[str, Any]:
        """The inputs that are parameters of a Kubeflow pipeline, with their defaults; None: required."""

    def create_pipeline(self, request: RunRequest, inputs: Any, beam_args: Sequence[str]) -> Pipeline:
        """Create the pipeline of a request from its `find_inputs`; without inputs the graph of nodes is the same."""

    def summarize(self, run: Run, recipe: Any, run_dir: str) -> dict[str, Any]:
        """Write `summary.json` of a finished run; return its content."""

    def print_summary(self, summary: dict[str, Any], run_dir: str) -> None:
        """Print the summary on one screen."""

    def render(self, run: Run, summary: Mapping[str, Any], run_dir: str, baseline: Mapping[str, float] | None) -> str:
        """Render the report's HTML; `baseline`: metrics of the baseline model, or None."""


WORKFLOWS: dict[str, Workflow] = {workflow.name: workflow for workflow in (PretrainWorkflow(), FineTuneWorkflow())}


def workflow_of(request: RunRequest) -> Workflow:
    """Look up the workflow of a request's recipe.

    Raises:
        InputError: no such recipe or task, or an invalid setting.
    """
    return WORKFLOWS[request.resolved.workflow]
