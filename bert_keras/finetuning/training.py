"""Fine-tuning as functions: from rows to a trained model, and from a model and rows to answers."""

import dataclasses
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np
from pydantic import TypeAdapter

from bert_keras.convert.model_folder import ModelFolder
from bert_keras.data.array_batches import ArrayExamples
from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import ROBERTAS, check_reads, initialize_encoder
from bert_keras.models.config import BertConfig
from bert_keras.objectives.distillation import distilled
from bert_keras.objectives.objective import Objective
from bert_keras.objectives.settings import DistillationSettings
from bert_keras.tasks.objectives import check_training, list_objective, matryoshka
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.span.answers import span_answers
from bert_keras.tasks.table import Task
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.protocol import Tokenizer
from bert_keras.training.backends.child import needs_child, run_child, train_in_child
from bert_keras.training.backends.devices import Devices
from bert_keras.training.checkpoints import has_finished
from bert_keras.training.config import SecondPhase, TrainingConfig
from bert_keras.training.loop import TrainingLoop
from bert_keras.training.phases import phases_of


class Taught(Protocol):
    """A teacher (`bert_keras.finetuning.teacher`)."""

    def arrays(self, split: str, rows: Sequence[TaskRow], ids: np.ndarray, batch_size: int) -> dict[str, np.ndarray]:
        """Its outputs for a split's rows, whose `input_ids` are `ids`."""


def fine_tune(
    task: Task,
    settings: TaskSettings,
    config: FineTuningConfig,
    init: ModelFolder,
    train: Sequence[TaskRow],
    held_out: Sequence[TaskRow],
    directory: str,
    devices: Devices | None = None,
    teacher: Taught | None = None,
    distillation: DistillationSettings | None = None,
) -> keras.Model:
    """Train a model for a task, with `bert_keras.training.loop`, and return it, float32.

    `init`: the encoder, or a task model, and its tokenizer (`bert_keras.finetuning.init_checkpoint`). `held_out`: rows
    whose loss is logged. `directory`: of checkpoints and logs; the same one with the same arguments resumes. `teacher`:
    a model whose outputs are learned, too, as `distillation` says. InputError: rows, settings and encoder do not fit
    each other.
    """
    check_reads(init, settings, task, config)
    kind = task_type_of(task)
    features = []
    for split, rows in (("training", train), ("held-out", held_out)):
        if not rows or (rows[0].gold is None and not (task.contrastive and split == "training")):
            raise InputError(f"{task.name} has {len(rows)} {split} rows{', without golds' if rows else ''}; give some")
        features.append(kind.features(rows, task, settings, init.known_tokenizer()))
    if teacher and settings.list_size:
        raise InputError("a teacher answers passages alone, and task.list_size is set; set it to 0")
    learns = (distillation or DistillationSettings()) if teacher else None
    if task.contrastive:
        check_training(train, settings, init.config)
        if learns and learns.weight == 1 and settings.matryoshka_dimensions:
            raise InputError(
                "distillation.weight is 1, which leaves out the loss that task.matryoshka_dimensions are learned by; "
                "give a smaller weight, or no dimensions"
            )
    learned = features[0].arrays["weights"] > 0
    # As in run_squad.py, a step counts rows, not windows.
    training = config.training_config(len(np.unique(features[0].row_of[learned])))
    taught: list[Mapping[str, np.ndarray]] = [{}, {}]
    if teacher:
        taught = [
            teacher.arrays(split, rows, of_split.arrays["input_ids"], config.eval_batch_size)
            for (split, rows), of_split in zip((("train", train), ("eval", held_out)), features, strict=True)
        ]
    of_rows, of_held_out = ({**split.arrays, **outputs} for split, outputs in zip(features, taught, strict=True))
    arrays = {name: array[learned] for name, array in of_rows.items()}, of_held_out
    size = init.architecture.embedding_size
    recipe = _TaskModel(task, settings, init.config, config.seed, size, init.family, learns)

    def create_model() -> keras.Model:
        model = recipe.create()
        initialize_encoder(model, init, task)
        return model

    if needs_child(config) and not has_finished(directory):
        _train_in_child(recipe, create_model(), training, arrays, directory)
    trained = _train(create_model, recipe.objective, training, arrays, directory, devices)
    if config.mixed_precision == "float32":
        return trained
    # Score the model that is served, in float32.
    model = create_model()
    model.set_weights(trained.get_weights())
    return model


@dataclasses.dataclass(frozen=True)
class _TaskModel:
    """A task model without its weights."""

    task: Task
    settings: TaskSettings
    encoder: BertConfig
    seed: int
    embedding_size: int
    family: str
    distillation: DistillationSettings | None

    @property
    def objective(self) -> Objective:
        objective, dimensions = task_type_of(self.task).objective, self.settings.matryoshka_dimensions
        if dimensions and self.task.contrastive:
            objective = matryoshka(dimensions)
        if self.settings.list_size and self.task.kind == "ranking":
            objective = list_objective
        return distilled(objective, self.distillation) if self.distillation else objective

    def create(self) -> keras.Model:
        kind = task_type_of(self.task)
        model = kind.create_model(self.encoder, self.task, self.settings, self.seed, self.embedding_size)
        model.build()
        model.drops_encoder_output = self.family in ROBERTAS
        return model


_Arrays = tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]
# Of a child: its training rows, its held-out rows, and the initial weights in order.
_CHILD_FILES = ("train.npz", "held_out.npz", "weights.npz")


def _train(
    create_model: Callable[[], keras.Model],
    objective: Objective,
    config: TrainingConfig,
    arrays: _Arrays,
    directory: str,
    devices: Devices | None = None,
) -> keras.Model:
    """Train on arrays of training rows and held-out rows."""
    examples = ArrayExamples(*arrays, static_shape=config.strategy == "tpu")
    phases = phases_of(config, SecondPhase(), [examples])
    loop = TrainingLoop(create_model, objective, config, phases, directory, devices)
    trained = loop.run()
    loop.checkpoints.finish()
    return trained


def _train_in_child(
    recipe: _TaskModel, initial: keras.Model, config: TrainingConfig, arrays: _Arrays, directory: str
) -> None:
    """`_train` on JAX, in a child process that finds rows and initial weights in files."""
    with tempfile.TemporaryDirectory() as folder:
        weights = {str(number): value for number, value in enumerate(initial.get_weights())}
        for name, values in zip(_CHILD_FILES, (*arrays, weights), strict=True):
            np.savez(os.path.join(folder, name), **values)
        job = {"model": dataclasses.asdict(recipe), "training": dataclasses.asdict(config)}
        train_in_child(__spec__.name, {**job, "folder": folder, "directory": directory})


def _train_job(job: Mapping[str, Any]) -> None:
    """The training of `_train_in_child`, in the child."""
    recipe = TypeAdapter(_TaskModel).validate_python(job["model"])
    config = TypeAdapter(TrainingConfig).validate_python(job["training"])
    train, held_out, weights = (dict(np.load(os.path.join(job["folder"], name))) for name in _CHILD_FILES)

    def create_model() -> keras.Model:
        model = recipe.create()
        model.set_weights([weights[str(number)] for number in range(len(weights))])
        return model

    _train(create_model, recipe.objective, config, (train, held_out), job["directory"])


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedTask:
    """A trained model of a task, with its settings and tokenizer."""

    model: keras.Model  # float32
    task: Task
    settings: TaskSettings
    tokenizer: Tokenizer

    def outputs(self, rows: Sequence[TaskRow], batch_size: int) -> tuple[Any, TaskFeatures]:
        """The model's outputs (`predict`) for rows, and their features; golds are not used."""
        from bert_keras.finetuning.prediction import predict

        unlabelled = [dataclasses.replace(row, gold=None) for row in rows]
        features = task_type_of(self.task).features(unlabelled, self.task, self.settings, self.tokenizer)
        return predict(self.model, features, batch_size), features

    def answers(self, rows: Sequence[TaskRow], batch_size: int) -> list[Any]:
        """The answers to rows, in the form of their golds, in order."""
        outputs, features = self.outputs(rows, batch_size)
        return task_type_of(self.task).answers(outputs, features, rows, self.task, self.settings)

    def golds(self, rows: Sequence[TaskRow], batch_size: int) -> list[Any]:
        """The answers as golds of these rows (`bert_keras.tasks.rows`)."""
        if self.task.kind == "ranking":
            answers = self.answers(rows, batch_size)
            return [[row.inputs["text"], int(answer > 0)] for row, answer in zip(rows, answers, strict=True)]
        if self.task.kind != "span":
            return self.answers(rows, batch_size)
        spans = span_answers(*self.outputs(rows, batch_size), rows, self.task, self.settings)
        return [{"answers": [{"text": span.text, "answer_start": span.start}] if span.text else []} for span in spans]


if __name__ == "__main__":
    run_child(_train_job)
