"""The arguments of `pretrain` and `finetune`: plain data, which JSON can hold."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any

from bert_keras.models.config import BertConfig
from bert_keras.objectives.settings import PretrainingSettings
from bert_keras.saved_model.settings import ExportSettings
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings, SearchSettings, TaskSettings
from bert_keras.training.config import SecondPhase, TrainingConfig

_Dataclass = typing.TypeVar("_Dataclass")
_Job = typing.TypeVar("_Job", bound="Job")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The fields of every job.

    Attributes:
        output_dir: a new folder for the exported model.
        logs_dir: a folder for `log.jsonl`, TensorBoard's event files, and a task's scores and predictions.
        training_root: the folder of all checkpoints. Each training has a subfolder, named by a hash of everything that
            the training depends on: a killed job resumes, and other settings, data or code train anew.
        code: a hash of the code that trains.
        export: how the model is written.
    """

    output_dir: str
    logs_dir: str
    training_root: str
    code: str = ""
    export: ExportSettings = dataclasses.field(default_factory=ExportSettings)

    def to_json(self) -> str:
        """The fields as a JSON object."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls: type[_Job], text: str) -> _Job:
        """Read what `to_json` wrote; errors as of `from_fields`."""
        return cls.from_fields(json.loads(text))

    @classmethod
    def from_fields(cls: type[_Job], fields: Mapping[str, Any]) -> _Job:
        """The job of a JSON object; fields that are missing have their defaults.

        Raises:
            ValueError: an unknown field, or a value that a setting cannot have.
        """
        return _from_fields(cls, fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainJob(Job):
    """A pre-training, from examples to an exported model.

    Attributes:
        examples: folders of each phase: outputs of `bert-tfx examples`, or artifacts of PretrainExampleGen. Those of
            one length are mixed (`bert_keras.training.mixed_examples`).
        model: the encoder.
        training: both phases.
        second_phase: the last steps, on the longer examples.
        pretraining: the model around the encoder.
        init: a folder that `bert_keras.initial_model.export_initial_model` wrote; "": all weights are drawn.
    """

    examples: tuple[str, ...]
    model: BertConfig
    training: TrainingConfig
    second_phase: SecondPhase = dataclasses.field(default_factory=SecondPhase)
    pretraining: PretrainingSettings = dataclasses.field(default_factory=PretrainingSettings)
    init: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneJob(Job):
    """A fine-tuning, from rows to a scored and exported model.

    Attributes:
        rows: the folder of the rows (`bert_keras.tasks.rows.write_rows`), or an artifact of TaskExampleGen.
        task: the task's name; the rows must be of this task.
        task_settings: how rows become features.
        init: the folder of the initial checkpoint, in any format that `bert-tfx convert` reads; "": all weights are
            drawn.
        init_fingerprint: a hash of the files of `init`, for the cache of a pipeline; training does not read it.
        cased: whether the vocabulary of `init` keeps case; None: the folder says it.
        model: without `init`: the encoder.
        vocabulary: without `init`: the folder of `vocab.txt` and `vocab_spec.json`.
        training: of a search: the settings that it does not vary.
        search: the grid to search before the training, if it is enabled.
        restarts: how many seeds, and how many of their models answer together.
        max_unknown_fraction: the largest share of unknown tokens in the rows; None: any.
    """

    rows: str
    task: str
    task_settings: TaskSettings = dataclasses.field(default_factory=TaskSettings)
    init: str = ""
    init_fingerprint: str = ""
    cased: bool | None = None
    model: BertConfig | None = None
    vocabulary: str = ""
    training: FineTuningConfig = dataclasses.field(default_factory=FineTuningConfig)
    search: SearchSettings = dataclasses.field(default_factory=SearchSettings)
    restarts: RestartSettings = dataclasses.field(default_factory=RestartSettings)
    max_unknown_fraction: float | None = None


def _from_fields(cls: type[_Dataclass], fields: Mapping[str, Any]) -> _Dataclass:
    """A dataclass from the JSON object of its fields; those that are missing have their defaults."""
    types = typing.get_type_hints(cls)
    if unknown := sorted(fields.keys() - types.keys()):
        raise ValueError(f"{cls.__name__} has no field {unknown[0]}; it has {', '.join(types)}")
    return cls(**{name: _value(types[name], value) for name, value in fields.items()})


def _value(annotation: Any, value: Any) -> Any:
    """The value of a field: JSON has objects for dataclasses and lists for tuples."""
    if isinstance(value, Mapping):
        # Of `BertConfig | None` the first.
        return _from_fields((typing.get_args(annotation) or (annotation,))[0], value)
    return tuple(value) if isinstance(value, list) else value
