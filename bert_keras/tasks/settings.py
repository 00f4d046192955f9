"""How a task's rows become features, how a model is trained on them, and what is known of a task's examples."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Literal

from bert_keras.config import TrainingConfig
from bert_keras.errors import InputError
from bert_keras.tasks.table import Task, task_of

# Beside the shards of a task's examples, and beside an exported model.
TASK_SPEC_FILE = "task_spec.json"
# Beside an exported model alone: the fields of its `TaskSettings`.
TASK_SETTINGS_FILE = "task_settings.json"

Truncation = Literal["head", "tail", "head_tail"]


@dataclasses.dataclass(frozen=True)
class TaskSettings:
    """How rows are cut to pieces and answers read off; the defaults are google-research/bert's.

    Attributes:
        max_seq_length: T, most pieces of a sequence, special tokens included.
        truncation: which pieces of a single text that is too long are kept: the first, the last, or (`head_tail`) a
            quarter of the room from its head and the rest from its tail (arXiv 1905.05583, section 5.3.1: 128 + 382 of
            510). Pairs lose the end of the longer text (FACTS D7).
        doc_stride: of spans: pieces from the start of one window of a context to that of the next.
        max_query_length: of spans: most pieces of a question.
        n_best_size: of spans: how many starts and ends are looked at.
        max_answer_length: of spans: pieces of the longest answer.
        null_score_diff_threshold: of spans that may have no answer: none is given if the score of none is more than
            this above the best answer's.
        features: empty: all weights are trained. Or the layers of the frozen encoder that a BiLSTM reads
            (`bert_keras.feature_based`; tagging alone).
        lstm_units: of that BiLSTM, in each direction.
        bilstm: another one, H wide, between an encoder that is trained and the output layer ("+ BiLSTM" of the paper's
            section 5.1, which makes up for a left-to-right encoder).
    """

    max_seq_length: int = 128
    truncation: Truncation = "head"
    doc_stride: int = 128
    max_query_length: int = 64
    n_best_size: int = 20
    max_answer_length: int = 30
    null_score_diff_threshold: float = 0.0
    features: str = ""
    lstm_units: int = 768
    bilstm: bool = False

    def __post_init__(self) -> None:
        for name in ("doc_stride", "max_query_length", "n_best_size", "max_answer_length", "lstm_units"):
            if getattr(self, name) < 1:
                raise ValueError(f"task.{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_seq_length < 8:
            raise ValueError(f"task.max_seq_length is {self.max_seq_length}; it must be at least 8")
        if self.truncation not in typing.get_args(Truncation):
            raise ValueError(f"task.truncation is {self.truncation!r}; it must be head, tail or head_tail")
        if self.bilstm and self.features:
            raise ValueError(f"task.bilstm is True and task.features {self.features!r}, which has its own: give one")


@dataclasses.dataclass(frozen=True)
class FineTuningConfig:
    """How a model is fine-tuned; the defaults are those of google-research/bert's run_classifier.py.

    Attributes:
        num_train_epochs: how often each training row is seen, on average.
        warmup_proportion: which part of the steps is warm-up.
        train_batch_size: sequences a step, over all devices.
        learning_rate: peak rate, which decays linearly to 0 at the last step.
        schedule: as those below, see `bert_keras.config.TrainingConfig`.
        optimizer: bert_adam, adamw or lamb.
        beta_2: decay a step of the mean of the squared gradient.
        epsilon: added to its root.
        weight_decay: decoupled.
        layer_decay: a layer; ELECTRA's is .8.
        clip_norm: of the gradient.
        gradient_accumulation_steps: parts of a batch.
        save_checkpoints_steps: steps between two checkpoints.
        eval_every_steps: steps between two evaluations that are logged.
        eval_batches: batches of each.
        eval_batch_size: sequences a batch there, and of the predictions behind the official scores.
        strategy: which devices.
        mixed_precision: float32, or mixed_bfloat16.
        jit_compile: with XLA.
        seed: of the new weights, of dropout and of the order of the rows.
    """

    num_train_epochs: float = 3.0
    warmup_proportion: float = 0.1
    train_batch_size: int = 32
    learning_rate: float = 5e-5
    schedule: Literal["bert", "linear"] = TrainingConfig.schedule
    optimizer: Literal["bert_adam", "adamw", "lamb"] = TrainingConfig.optimizer
    beta_2: float = TrainingConfig.beta_2
    epsilon: float = TrainingConfig.epsilon
    weight_decay: float = TrainingConfig.weight_decay
    layer_decay: float = TrainingConfig.layer_decay
    clip_norm: float = TrainingConfig.clip_norm
    gradient_accumulation_steps: int = TrainingConfig.gradient_accumulation_steps
    save_checkpoints_steps: int = TrainingConfig.save_checkpoints_steps
    eval_every_steps: int = TrainingConfig.eval_every_steps
    eval_batches: int = TrainingConfig.eval_batches
    eval_batch_size: int = TrainingConfig.eval_batch_size
    strategy: Literal["one_device", "mirrored", "multi_worker", "tpu"] = TrainingConfig.strategy
    mixed_precision: Literal["float32", "mixed_bfloat16"] = TrainingConfig.mixed_precision
    jit_compile: bool = TrainingConfig.jit_compile
    seed: int = TrainingConfig.seed

    def __post_init__(self) -> None:
        if not self.num_train_epochs > 0 or not 0 <= self.warmup_proportion <= 1:
            raise ValueError(
                f"training.num_train_epochs is {self.num_train_epochs}, training.warmup_proportion "
                f"{self.warmup_proportion}; the first must be above 0, the second in [0, 1]"
            )
        self._of_steps(1)  # says what is wrong with the others

    def training_config(self, num_rows: int) -> TrainingConfig:
        """The run on so many training rows (of spans: examples, not windows; FACTS D6).

        Raises:
            InputError: they are too few for a step.
        """
        steps = int(num_rows / self.train_batch_size * self.num_train_epochs)
        if not steps:
            raise InputError(
                f"{num_rows} training rows, {self.num_train_epochs:g} times, are not one batch of "
                f"training.train_batch_size={self.train_batch_size}: give more rows or epochs, or a smaller batch"
            )
        return self._of_steps(steps)

    def _of_steps(self, steps: int) -> TrainingConfig:
        fields = {**vars(self), "num_train_steps": steps, "num_warmup_steps": int(steps * self.warmup_proportion)}
        del fields["num_train_epochs"], fields["warmup_proportion"]
        return TrainingConfig(**fields)


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """Which trainings a search tries, all combinations; the defaults are the paper's (section 4.1, appendix A.3).

    Attributes:
        enabled: whether the settings below are searched before the training; False: it takes `training.*` as they are.
        train_batch_size: values of `training.train_batch_size`.
        learning_rate: values of `training.learning_rate`.
        num_train_epochs: values of `training.num_train_epochs`.
    """

    enabled: bool = False
    train_batch_size: tuple[int, ...] = (16, 32)
    learning_rate: tuple[float, ...] = (5e-5, 4e-5, 3e-5, 2e-5)
    num_train_epochs: tuple[float, ...] = (2.0, 3.0, 4.0)

    def __post_init__(self) -> None:
        for name, values in self.grid.items():
            if not values or len(set(values)) < len(values):
                raise ValueError(f"search.{name} is {values}; it must be different values, at least one")
            for value in values:
                FineTuningConfig(**{name: value})  # says what is wrong with it

    @property
    def grid(self) -> dict[str, list]:
        """The values of each field of `FineTuningConfig` that is searched."""
        return {
            "train_batch_size": [int(value) for value in self.train_batch_size],
            "learning_rate": [float(value) for value in self.learning_rate],
            "num_train_epochs": [float(value) for value in self.num_train_epochs],
        }


@dataclasses.dataclass(frozen=True)
class RestartSettings:
    """How often a model is trained, each time from another seed, and how many of them are one model in the end.

    Fine-tuning is unstable on small sets; the paper (section 4.1) trains several and takes the best on the held-out
    rows.

    Attributes:
        count: trainings, of the seeds `training.seed`, `training.seed` + 1, ...
        ensemble: how many, the best ones, answer together; 1: the best one alone.
    """

    count: int = 1
    ensemble: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.ensemble <= self.count:
            raise ValueError(
                f"restarts.count is {self.count}, restarts.ensemble {self.ensemble}; the first must be at least 1, the "
                "second from 1 to that"
            )


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """What is known of a task's examples (`task_spec.json`).

    Attributes:
        task: with the labels of the data.
        counts: rows by split.
        skipped: by file, how many bad rows were left out.
    """

    task: Task
    counts: dict[str, int]
    skipped: dict[str, int] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """The file's text."""
        fields = {"task": self.task.name, "labels": self.task.labels, "counts": self.counts, "skipped": self.skipped}
        return json.dumps(fields, indent=2, sort_keys=True) + "\n"

    @classmethod
    def load(cls, directory: str) -> TaskSpec:
        """Reads `DIRECTORY/task_spec.json`."""
        import tensorflow as tf

        with tf.io.gfile.GFile(f"{directory}/{TASK_SPEC_FILE}") as file:
            fields = json.load(file)
        task = dataclasses.replace(task_of(fields["task"]), labels=tuple(fields["labels"]))
        return cls(task, fields["counts"], fields["skipped"])
