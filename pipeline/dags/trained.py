"""The end of both pipelines' own stages: a Trainer, and the examples and thresholds that judge it."""

import dataclasses
from typing import Any

import tensorflow_model_analysis as tfma
from tfx.components import Trainer
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.proto import trainer_pb2
from tfx.types import channel

from bert_keras.jobs import Job
from components.evaluator.component import ForgettingSettings, PairSettings, TeacherSettings


@dataclasses.dataclass
class Trained:
    """A pipeline up to its Trainer.

    `stages` are in a valid order of execution. The model is judged on the `eval` split of `examples` by `gate`
    (`pipeline.dags.eval_gate`); `initial` exports the model that the training started from, the baseline if no blessed
    model is comparable; `reference` are examples of text that is not trained on, scored as `forgetting` says.
    """

    stages: list[BaseComponent]
    trainer: Trainer
    examples: channel.BaseChannel
    gate: tfma.EvalConfig
    initial: BaseComponent | None = None
    reference: channel.BaseChannel | None = None
    forgetting: ForgettingSettings | None = None
    pairs: PairSettings | None = None
    teacher: TeacherSettings | None = None


def trainer_of(entry_point: str, job: Job, examples: channel.BaseChannel, **inputs: Any) -> Trainer:
    """The Trainer of a job; TFX passes the job's fields, without the folders, to the function `run_fn` of a module."""
    return Trainer(
        # Not `module_file`: it copies files without their packages, and needs pip in the environment.
        run_fn=f"{entry_point}.run_fn",
        examples=examples,
        train_args=trainer_pb2.TrainArgs(splits=["train"]),
        eval_args=trainer_pb2.EvalArgs(splits=["eval"]),
        custom_config=dataclasses.asdict(job),
        **inputs,
    )
