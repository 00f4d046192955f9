"""Fine-tuning as functions: from rows to a trained model, and from a model and rows to answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.convert.model_folder import ModelFolder
from bert_keras.data.array_batches import ArrayExamples
from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import check_reads, initialize_encoder
from bert_keras.finetuning.prediction import predict
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.similarity import check_training
from bert_keras.tasks.table import Task
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.protocol import Tokenizer
from bert_keras.training.config import SecondPhase
from bert_keras.training.loop import TrainingLoop
from bert_keras.training.phases import phases_of


def fine_tune(
    task: Task,
    settings: TaskSettings,
    config: FineTuningConfig,
    init: ModelFolder,
    train: Sequence[TaskRow],
    held_out: Sequence[TaskRow],
    directory: str,
    strategy: tf.distribute.Strategy | None = None,
) -> keras.Model:
    """Train a model for a task, with `bert_keras.training.loop`, and return it, float32.

    Args:
        task: with its labels.
        settings: how rows become features.
        config: the run.
        init: the encoder and its tokenizer (`bert_keras.finetuning.init_checkpoint`).
        train: rows with golds.
        held_out: rows with golds, whose loss is logged.
        directory: where checkpoints and logs live; the same one with the same arguments resumes.
        strategy: of `bert_keras.training.strategy.create_strategy`; None makes it.

    Raises:
        InputError: rows, settings and encoder do not fit each other.
    """
    check_reads(init, settings, task, config)
    kind = task_type_of(task)
    features = []
    for split, rows in (("training", train), ("held-out", held_out)):
        if not rows or (rows[0].gold is None and not (task.contrastive and split == "training")):
            raise InputError(f"{task.name} has {len(rows)} {split} rows{', without golds' if rows else ''}; give some")
        features.append(kind.features(rows, task, settings, init.known_tokenizer()))
    if task.contrastive:
        check_training(train, settings, init.config, config)
    learned = features[0].arrays["weights"] > 0
    # As in run_squad.py, a step counts rows, not windows.
    training = config.training_config(len(np.unique(features[0].row_of[learned])))
    arrays = {name: array[learned] for name, array in features[0].arrays.items()}
    examples = ArrayExamples(arrays, features[1].arrays, static_shape=config.strategy == "tpu")

    def create_model() -> keras.Model:
        model = kind.create_model(init.config, task, settings, config.seed, init.architecture.embedding_size)
        model.build()
        initialize_encoder(model, init)
        return model

    phases = phases_of(training, SecondPhase(), [examples])
    loop = TrainingLoop(create_model, kind.objective, training, phases, directory, strategy)
    trained = loop.run()
    loop.drop_optimizer()
    if config.mixed_precision == "float32":
        return trained
    # Score the model that is served, in float32.
    model = create_model()
    model.set_weights(trained.get_weights())
    return model


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedTask:
    """A trained model of a task, with its settings and tokenizer.

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
        """The model's outputs (`predict`) for rows, and their features; golds are not used."""
        unlabelled = [dataclasses.replace(row, gold=None) for row in rows]
        features = task_type_of(self.task).features(unlabelled, self.task, self.settings, self.tokenizer)
        return predict(self.model, features, batch_size), features

    def answers(self, rows: Sequence[TaskRow], batch_size: int) -> list[Any]:
        """The answers to rows, in the form of their golds, in order."""
        outputs, features = self.outputs(rows, batch_size)
        return task_type_of(self.task).answers(outputs, features, rows, self.task, self.settings)
