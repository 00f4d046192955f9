"""The end of every pipeline: baseline, evaluation, serving validation, push. Wiring only."""

from __future__ import annotations

from typing import Any

import tensorflow_model_analysis as tfma
from tfx.components import Trainer
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.common.resolver import Resolver
from tfx.proto import pusher_pb2
from tfx.types import channel, standard_artifacts

from components.baseline_resolver.strategy import LatestComparableStrategy
from components.code_version import code_fingerprint
from components.evaluator import metrics, minimal_pairs, slices, task_scores, word_perplexity
from components.evaluator.component import Evaluator, ForgettingSettings, PairSettings
from components.pusher.component import ModelPush
from components.serving_validator.component import ServingValidator
from components.serving_validator.limits import ServingLimits
from pipeline import stages
from pipeline.runs.corpus_checks import Checked
from pipeline.runs.run_dir import serving_dir


def evaluate_and_push(
    trainer: Trainer,
    examples: channel.BaseChannel,
    eval_config: tfma.EvalConfig,
    limits: ServingLimits,
    run_dir: str,
    initial: BaseComponent | None = None,
    reference: channel.BaseChannel | None = None,
    forgetting: ForgettingSettings | None = None,
    checked: Checked = None,
    pairs: PairSettings | None = None,
) -> list[BaseComponent]:
    """Baseline, Evaluator, ServingValidator and ModelPush.

    Args:
        examples: examples whose `eval` split is used.
        eval_config: metrics and thresholds (`pipeline.dags.eval_gate`).
        limits: limits for a server with the model.
        run_dir: run directory, to whose serving folder the model is pushed.
        initial: exports the model that the training started from: the baseline if no blessed model is comparable.
        reference: examples of text that is not trained on, for the initial model and the new one.
        forgetting: how these are scored.
        checked: evaluation sets that the corpus has no texts of, for the record in the pushed version.
        pairs: minimal pairs that the model is scored on.
    """
    compared: dict[str, Any] = {"initial": initial.outputs[stages.MODEL]} if initial else {}
    baseline = Resolver(
        strategy_class=LatestComparableStrategy,
        candidate=trainer.outputs[stages.MODEL],
        model=channel.Channel(type=standard_artifacts.Model),
        model_blessing=channel.Channel(type=standard_artifacts.ModelBlessing),
        **compared,
    ).with_id(stages.BASELINE)
    judges = (metrics, minimal_pairs, slices, task_scores, word_perplexity)
    gate = Evaluator(
        examples=examples,
        model=trainer.outputs[stages.MODEL],
        baseline_model=baseline.outputs[stages.MODEL],
        eval_config=eval_config,
        module_path=slices.__name__,
        code=code_fingerprint(*(module.__name__ for module in judges)),
        initial_model=initial.outputs[stages.MODEL] if initial else None,
        reference_examples=reference,
        forgetting=forgetting,
        pairs=pairs,
    )
    validator = ServingValidator(trainer.outputs[stages.MODEL], gate.outputs[stages.BLESSING], limits)
    # A changed server must miss the cache too; components do not import the server, only a command that starts one.
    validator.spec.exec_properties["server_code"] = code_fingerprint("pipeline.commands.server.serve")
    push = ModelPush(
        model=trainer.outputs[stages.MODEL],
        model_run=trainer.outputs[stages.MODEL_RUN],
        model_blessing=gate.outputs[stages.BLESSING],
        evaluation=gate.outputs[stages.EVALUATION],
        infra_blessing=validator.outputs[stages.BLESSING],
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=serving_dir(run_dir))
        ),
        decontaminated=checked,
    )
    return [baseline, gate, validator, push]
