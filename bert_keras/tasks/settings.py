"""Settings of tasks, of their fine-tuning, and the specification of a task's examples."""

import dataclasses
import json
import os
from typing import Annotated, Any, Literal

from etils import epath

from bert_keras import files
from bert_keras.errors import Count, InputError, Positive, Rate, Rule, Settings, Share, at_least
from bert_keras.tasks.table import Task, task_of
from bert_keras.training.affects import export, weights
from bert_keras.training.config import OptimizationConfig, TrainingConfig

# Beside the shards of a task's examples, and beside an exported model.
TASK_SPEC_FILE = "task_spec.json"
# Beside an exported model only: the fields of its `TaskSettings`.
TASK_SETTINGS_FILE = "task_settings.json"

Truncation = Literal["head", "tail", "head_tail"]


@dataclasses.dataclass(frozen=True)
class TaskSettings(Settings, section="task"):
    """Settings of features and answers; the defaults are google-research/bert's.

    Attributes:
        max_seq_length: T, maximum number of tokens of a sequence, including special tokens.
        truncation: tokens kept of a single text that is too long: the first, the last, or (`head_tail`) a quarter from
            its head and the others from its tail (arXiv 1905.05583, section 5.3.1: 128 + 382 of 510). Pairs lose the
            end of the longer text (run_classifier.py, `_truncate_seq_pair`).
        doc_stride: spans: tokens from the start of one window of a context to the start of the next.
        max_query_length: spans: maximum number of tokens of a question.
        n_best_size: spans: number of starts and ends considered per window.
        max_answer_length: spans: maximum number of tokens of an answer.
        null_score_diff_threshold: spans that may have no answer: the answer is empty if the score of no answer exceeds
            the best answer's by more than this.
        features: empty: all weights are trained, but those of a biLM. Otherwise the layers of the frozen encoder that
            a BiLSTM reads (`bert_keras.models.feature_based`).
        lstm_units: units of that BiLSTM per direction.
        bilstm: a BiLSTM, H wide, between a trained encoder and the output layer ("+ BiLSTM" in the paper's section
            5.1, to compensate for a left-to-right encoder).
        pooling: vectors of texts: `mean` of the last layer's vectors, or `cls`, as in
            `bert_keras.saved_model.settings.EmbeddingSettings`.
        dropout: vectors of texts: dropout of the encoder in training; 0: as in its configuration.
        matryoshka_dimensions: vectors of texts: lengths that they are also trained for, cut from the left and
            normalised again (`bert_keras.tasks.objectives.matryoshka`), such as 32,64,128; the served model says so.
        head: the layer between the first token's vector and the output layer: `tanh`, as in the paper; `gelu` (the
            exact one: ELECTRA, DeBERTa), `relu` (DistilBERT); ModernBERT's, with a normalisation, on the first token
            (`norm`) or on the mean of the tokens (`norm_mean`), for labels of tokens on each; empty: the initial
            model's, `tanh` if that has none.
        list_size: rankings: 0: each passage is judged alone, by a binary cross-entropy; N: a softmax over a relevant
            passage and N - 1 others of its query (`bert_keras.tasks.objectives`).
        activation: numbers: what another program applies to the number that is learned, served and scored here, as a
            folder in Hugging Face's format says: sentence-transformers' CrossEncoder with one label `sigmoid`.
    """

    max_seq_length: Annotated[int, at_least(8)] = weights(128)
    truncation: Truncation = weights("head")
    doc_stride: Count = weights(128)
    max_query_length: Count = weights(64)
    n_best_size: Count = export(20)
    max_answer_length: Count = export(30)
    null_score_diff_threshold: float = export(0.0)
    features: str = weights("")
    lstm_units: Count = weights(768)
    bilstm: bool = weights(False)
    pooling: Literal["mean", "cls"] = weights("mean")
    dropout: Rate = weights(0.0)
    matryoshka_dimensions: tuple[int, ...] = weights(())
    head: Literal["", "tanh", "gelu", "relu", "norm", "norm_mean"] = weights("")
    list_size: Annotated[int, Rule(lambda size: size == 0 or size >= 2, "0, or at least 2")] = weights(0)
    activation: Literal["identity", "sigmoid"] = export("identity")

    @property
    def on_encoder(self) -> dict[str, Any]:
        """Arguments of a task model: what is between its encoder and its output layer."""
        between = {"has_bilstm": self.bilstm, "features": self.features, "lstm_units": self.lstm_units}
        return {**between, "head": self.head or "tanh"}

    @classmethod
    def load(cls, directory: str) -> "TaskSettings":
        """Read `DIRECTORY/task_settings.json`; InputError for an unknown or invalid setting."""
        path = os.path.join(directory, TASK_SETTINGS_FILE)
        try:
            return cls(**files.read_json(path))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: {error}; write the model again") from error

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "matryoshka_dimensions", tuple(self.matryoshka_dimensions))  # a list in JSON
        if min(self.matryoshka_dimensions, default=1) < 1:
            raise ValueError(f"task.matryoshka_dimensions is {self.matryoshka_dimensions}; each must be at least 1")
        if self.bilstm and self.features:
            raise ValueError(
                f"task.bilstm is True and task.features is {self.features!r}, which has its own BiLSTM; set only one"
            )


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(OptimizationConfig):
    """Settings of fine-tuning; the defaults are those of google-research/bert's run_classifier.py.

    Attributes:
        num_train_epochs: number of passes over the training rows.
        warmup_proportion: share of the steps that is warm-up.
    """

    train_batch_size: Count = weights(32)
    learning_rate: Positive = weights(5e-5)
    num_train_epochs: Positive = weights(3.0)
    warmup_proportion: Share = weights(0.1)

    def training_config(self, num_rows: int) -> TrainingConfig:
        """Settings of a run on so many training rows (not windows, as in run_squad.py); InputError: too few."""
        steps = int(num_rows / self.train_batch_size * self.num_train_epochs)
        if not steps:
            raise InputError(
                f"{num_rows} training rows, {self.num_train_epochs:g} times, are not one batch of "
                f"training.train_batch_size={self.train_batch_size}: give more rows or epochs, or a smaller batch"
            )
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(OptimizationConfig)}
        warmup = int(steps * self.warmup_proportion)
        return TrainingConfig(**shared, num_train_steps=steps, num_warmup_steps=warmup)


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """The grid of a search; all combinations are trained. The defaults are the paper's (section 4.1, appendix A.3).

    Attributes:
        enabled: search the settings below before the training; False: use `training.*` unchanged.
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
                FineTuningConfig(**{name: value})  # checks the value

    @property
    def grid(self) -> dict[str, list]:
        """The values of each searched field of `FineTuningConfig`."""
        return {name: list(getattr(self, name)) for name in ("train_batch_size", "learning_rate", "num_train_epochs")}


@dataclasses.dataclass(frozen=True)
class RestartSettings(Settings, section="restarts"):
    """Number of trainings with different seeds, and size of the ensemble of the best ones.

    Fine-tuning is unstable on small sets; the paper (section 4.1) trains several models and selects the best on the
    held-out rows.

    Attributes:
        count: number of trainings, with the seeds `training.seed`, `training.seed` + 1, ...
        ensemble: number of best models in the ensemble; 1: the best model only.
    """

    count: Count = 1
    ensemble: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.ensemble <= self.count:
            raise ValueError(f"restarts.ensemble is {self.ensemble}; it must be from 1 to restarts.count, {self.count}")


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """Specification of a task's examples (`task_spec.json`)."""

    task: Task  # with the labels of the data
    counts: dict[str, int]  # number of rows by split
    skipped: dict[str, int] = dataclasses.field(default_factory=dict)  # number of bad rows left out, by file
    held_out: str = ""  # share of the training rows that is held out, and the seed; empty if the eval rows are files

    def to_json(self) -> str:
        """Contents of the file."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {"task": self.task.name, "labels": self.task.labels}
        return json.dumps(fields, indent=2, sort_keys=True) + "\n"

    @classmethod
    def load(cls, directory: str) -> "TaskSpec":
        """Read `DIRECTORY/task_spec.json`."""
        fields = json.loads(epath.Path(f"{directory}/{TASK_SPEC_FILE}").read_text())
        task = dataclasses.replace(task_of(fields["task"]), labels=tuple(fields["labels"]))
        return cls(task, fields["counts"], fields["skipped"], fields.get("held_out", ""))
