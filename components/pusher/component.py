"""ModelPush: TFX's Pusher with its own executor and the inputs needed for lineage."""

from __future__ import annotations

from typing import Any

from tfx.types import standard_artifacts
from tfx.types.standard_component_specs import PusherSpec

from components.pusher.executor import Executor
from components.pusher.lineage import DECONTAMINATED
from components.stage import Stage


class ModelPush(
    Stage,
    executor=Executor,
    inputs={
        "model": standard_artifacts.Model,
        "model_run": standard_artifacts.ModelRun,
        "model_blessing": standard_artifacts.ModelBlessing,
        "infra_blessing": standard_artifacts.InfraBlessing,
        "evaluation": standard_artifacts.ModelEvaluation,
    },
    parameters={},
    like=PusherSpec,
):
    """Pushes a `model` that both the quality gate and the serving check have blessed; all inputs are required."""

    def __init__(self, decontaminated: list[dict[str, Any]] | None = None, **values: Any):
        """Record `decontaminated`, the evaluation sets that the corpus has no texts of, in the version's lineage."""
        super().__init__(custom_config={DECONTAMINATED: decontaminated}, **values)
