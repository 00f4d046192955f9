"""Fine-tuning as functions: rows in, a trained model out; a model and rows in, answers out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.array_examples import ArrayExamples
from bert_keras.config import SecondPhase
from bert_keras.errors import InputError
from bert_keras.phases import phases_of
from bert_keras.tasks.kinds import kind_of
from bert_keras.tasks.prediction import predict
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.start import Start
from bert_keras.tasks.table import Task
from bert_keras.tokenization import Tokenizer
from bert_keras.training_loop import TrainingLoop


def fine_tune(
    task: Task,
    settings: TaskSettings,
    config: FineTuningConfig,
    start: Start,
    train: Sequence[TaskRow],
    held_out: Sequence[TaskRow],
    directory: str,
    strategy: tf.distribute.Strategy | None = None,
) -> keras.Model:
    """Trains a model for a task, with `bert_keras.training_loop`, and returns it, float32.

    Args:
        task: with its labels.
        settings: how rows become features.
        config: the run.
        start: the encoder.
        train: rows with golds.
        held_out: rows with golds, whose loss is logged.
        directory: where checkpoints and logs live; the same one with the same arguments resumes.
        strategy: of `bert_keras.strategy.create_strategy`; None makes it.

    Raises:
        InputError: rows, settings and encoder do not fit each other.
    """
    start.check_reads(settings)
    kind = kind_of(task)
    features = []
    for split, rows in (("training", train), ("held-out", held_out)):
        if not rows or rows[0].gold is None:
            raise InputError(f"{task.name} has {len(rows)} {split} rows{', without golds' if rows else ''}; give some")
        features.append(kind.features(rows, task, settings, start.tokenizer))
    learned = features[0].arrays["weights"] > 0
    # FACTS D6: a step counts rows, however many windows they have.
    training = config.training_config(len(np.unique(features[0].row_of[learned])))
    arrays = {name: array[learned] for name, array in features[0].arrays.items()}
    examples = ArrayExamples(arrays, features[1].arrays, static_shape=config.strategy == "tpu")

    def create_model() -> keras.Model:
        model = kind.create_model(start.config, task, settings, config.seed)
        model.build()
        start.initialize(model)
        return model

    phases = phases_of(training, SecondPhase(), [examples])
    trained = TrainingLoop(create_model, kind.objective, training, phases, directory, strategy).run()
    if config.mixed_precision == "float32":
        return trained
    # What is scored is what is served.
    model = create_model()
    model.set_weights(trained.get_weights())
    return model


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedTask:
    """A model of a task, and all that it takes to ask it.

    Attributes:
        model: float32.
        task: with its labels.
        settings: how rows become features.
        tokenizer: the encoder's.
    """

    model: keras.Model
    task: Task
    settings: TaskSettings
    tokenizer: Tokenizer

    def outputs(self, rows: Sequence[TaskRow], batch_size: int) -> tuple[Any, TaskFeatures]:
        """The model's outputs (`predict`) for rows, and the features that they are of; no gold is looked at."""
        asked = [dataclasses.replace(row, gold=None) for row in rows]
        features = kind_of(self.task).features(asked, self.task, self.settings, self.tokenizer)
        return predict(self.model, features, batch_size), features

    def answers(self, rows: Sequence[TaskRow], batch_size: int) -> list[Any]:
        """The answers to rows, in the form of their golds, in order."""
        outputs, features = self.outputs(rows, batch_size)
        return kind_of(self.task).answers(outputs, features, rows, self.task, self.settings)
