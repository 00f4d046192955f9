"""The end of every pipeline: a trained model is compared, judged, tried in a server, and pushed. Wiring only."""

from __future__ import annotations

import tensorflow_model_analysis as tfma
from tfx.components import Evaluator, Trainer
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.common.resolver import Resolver
from tfx.proto import pusher_pb2
from tfx.types import channel, standard_artifacts

import serving
from components import evaluator
from components.baseline.strategy import LatestComparableStrategy
from components.code_version import code_fingerprint
from components.evaluator import slices
from components.model_push.component import ModelPush
from components.serving_validator.component import ServingValidator
from components.serving_validator.limits import ServingLimits
from pipeline.run_dir import serving_dir


def judge_and_push(
    trainer: Trainer,
    examples: channel.BaseChannel,
    eval_config: tfma.EvalConfig,
    limits: ServingLimits,
    run_dir: str,
) -> list[BaseComponent]:
    """Baseline, Evaluator, ServingValidator and ModelPush.

    Args:
        trainer: whose model it is.
        examples: whose `eval` split it is judged on.
        eval_config: metrics and thresholds (`pipeline.eval_gate`).
        limits: what a server with the model must keep to.
        run_dir: whose serving folder the model is pushed to.
    """
    baseline = Resolver(
        strategy_class=LatestComparableStrategy,
        candidate=trainer.outputs["model"],
        model=channel.Channel(type=standard_artifacts.Model),
        model_blessing=channel.Channel(type=standard_artifacts.ModelBlessing),
    ).with_id("Baseline")
    gate = Evaluator(
        examples=examples,
        model=trainer.outputs["model"],
        baseline_model=baseline.outputs["model"],
        eval_config=eval_config,
        # Not `module_file`: that packs files flat, and needs pip in the environment.
        module_path=slices.__name__,
    )
    # The cache must not serve what other metrics measured; TFX's component has no parameter for it.
    gate.spec.exec_properties["code"] = code_fingerprint(evaluator)
    validator = ServingValidator(trainer.outputs["model"], gate.outputs["blessing"], limits)
    # Nor what another server did with the model; components know no server, only a command that starts one.
    validator.spec.exec_properties["server_code"] = code_fingerprint(serving)
    push = ModelPush(
        model=trainer.outputs["model"],
        model_run=trainer.outputs["model_run"],
        model_blessing=gate.outputs["blessing"],
        evaluation=gate.outputs["evaluation"],
        infra_blessing=validator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=serving_dir(run_dir))
        ),
    )
    return [baseline, gate, validator, push]
