"""The arguments of `pretrain` and `finetune`: plain data, which JSON can hold."""

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict, TypeAdapter

from bert_keras.models.config import BertConfig
from bert_keras.objectives.settings import DistillationSettings, PretrainingSettings
from bert_keras.saved_model.settings import ExportSettings
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings, SearchSettings, TaskSettings
from bert_keras.training.affects import EXPORT, INPUT, RUN, WEIGHTS
from bert_keras.training.config import SecondPhase, TrainingConfig

_Job = TypeVar("_Job", bound="Job")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The fields of every job.

    Attributes:
        output_dir: a new folder for the exported model.
        logs_dir: a folder for `log.jsonl`, TensorBoard's event files, and a task's scores and predictions.
        training_root: the folder of all checkpoints. Each training has a subfolder, named by a hash of what makes its
            weights (`bert_keras.training.affects`): a killed job resumes, also on other devices; other data, code or
            settings of the weights train anew.
        code: a hash of the code that makes the weights.
        stage_code: a hash of all code of the job, for the cache of a pipeline and for scores of the model.
        teacher: the folder of a larger model whose outputs are learned, too; "": none.
        teacher_fingerprint: a hash of the files of `teacher`, for the cache of a pipeline; training does not read it.
        distillation: how the teacher's outputs are learned.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    output_dir: str = field(metadata=RUN)
    logs_dir: str = field(metadata=RUN)
    training_root: str = field(metadata=RUN)
    code: str = field(default="", metadata=WEIGHTS)
    stage_code: str = field(default="", metadata=EXPORT)
    teacher: str = field(default="", metadata=INPUT)
    teacher_fingerprint: str = field(default="", metadata=RUN)
    distillation: DistillationSettings = field(default_factory=DistillationSettings, metadata=WEIGHTS)
    export: ExportSettings = field(default_factory=ExportSettings, metadata=EXPORT)

    @classmethod
    def from_fields(cls: type[_Job], fields: Mapping[str, Any]) -> _Job:
        """The job of a JSON object with the fields of `dataclasses.asdict`; ValueError for an unknown one."""
        return TypeAdapter(cls).validate_python(fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainJob(Job):
    """A pre-training, from examples to an exported model.

    Attributes:
        examples: folders of each phase: outputs of `bert-tfx examples`, or artifacts of PretrainExampleGen. Those of
            one length are mixed (`bert_keras.training.mixed_examples`).
        training: both phases.
        second_phase: the last steps, on the longer examples.
        init: a folder that `components.trainer.initial_model.export_initial_model` wrote; "": all weights are drawn.
    """

    examples: tuple[str, ...] = field(metadata=INPUT)
    model: BertConfig = field(metadata=WEIGHTS)
    training: TrainingConfig = field(metadata=WEIGHTS)
    second_phase: SecondPhase = field(default_factory=SecondPhase, metadata=WEIGHTS)
    pretraining: PretrainingSettings = field(default_factory=PretrainingSettings, metadata=WEIGHTS)
    init: str = field(default="", metadata=INPUT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneJob(Job):
    """A fine-tuning, from rows to a scored and exported model.

    Attributes:
        rows: the folder of the rows (`bert_keras.tasks.rows.write_rows`), or an artifact of TaskExampleGen.
        task: the task's name; the rows must be of this task.
        init: the folder of the initial checkpoint, in any format that `bert-tfx convert` reads; "": all weights are
            drawn.
        init_fingerprint: a hash of the files of `init`, like `teacher_fingerprint`.
        cased: whether the vocabulary of `init` keeps case; None: as the folder says.
        model: without `init`: the encoder.
        vocabulary: without `init`: the folder of `vocab.txt` and `vocab_spec.json`.
        training: of a search: the settings that it does not vary.
        search: the grid to search before the training, if it is enabled.
        restarts: how many seeds, and how many of their models answer together.
        max_unknown_fraction: the largest share of unknown tokens in the rows; None: any.
    """

    rows: str = field(metadata=INPUT)
    task: str = field(metadata=WEIGHTS)
    task_settings: TaskSettings = field(default_factory=TaskSettings, metadata=WEIGHTS)
    init: str = field(default="", metadata=INPUT)
    init_fingerprint: str = field(default="", metadata=RUN)
    cased: bool | None = field(default=None, metadata=INPUT)
    model: BertConfig | None = field(default=None, metadata=INPUT)
    vocabulary: str = field(default="", metadata=INPUT)
    training: FineTuningConfig = field(default_factory=FineTuningConfig, metadata=WEIGHTS)
    search: SearchSettings = field(default_factory=SearchSettings, metadata=RUN)
    restarts: RestartSettings = field(default_factory=RestartSettings, metadata=EXPORT)
    max_unknown_fraction: float | None = field(default=None, metadata=RUN)
