"""Trainings on the same rows from the same initial checkpoint, for a search and for restarts."""

import dataclasses
import gc
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from bert_keras.convert.model_folder import ModelFolder
from bert_keras.data.tfrecord_batches import records_of_files, shard_files
from bert_keras.errors import Diverged, InputError
from bert_keras.files import atomic_write_anywhere, json_text
from bert_keras.finetuning.init_checkpoint import check_knows, digest_of, init_checkpoint, read_init, with_head_of
from bert_keras.finetuning.teacher import Teacher
from bert_keras.finetuning.training import TrainedTask, fine_tune
from bert_keras.jobs import FinetuneJob
from bert_keras.objectives.settings import DistillationSettings
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.rows import TaskRow, read_rows
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings, TaskSpec
from bert_keras.tasks.table import Task, task_of
from bert_keras.tokenizers.vocabulary_files import read_vocabulary
from bert_keras.tokenizers.wordpiece import BertTokenizer, make_tokenizer
from bert_keras.training.affects import weights_of
from bert_keras.training.backends.devices import Devices
from bert_keras.training.checkpoint_dir import run_folder
from bert_keras.training.checkpoints import forget

# In the folder of a search's training: its scores on the held-out rows.
HELD_OUT_SCORES_FILE = "held_out_scores.json"
EVAL = "eval"
# Rows to train on that only a teacher answers.
UNLABELLED = "unlabelled"
# Rows per split whose tokens are counted, enough to tell whether the vocabulary knows their language.
_MAX_CHECKED = 5000


@dataclasses.dataclass(frozen=True, eq=False)
class FineTuner:
    """Trains and scores models of one task, from one initial checkpoint, with any training settings."""

    task: Task
    settings: TaskSettings
    init: ModelFolder
    rows: Mapping[str, Sequence[TaskRow]]  # by split; `eval` are held out, `train` has those that the teacher labelled
    root: str  # folder of all trainings
    identity: str  # a hash of everything that the weights depend on, apart from the settings of the training
    scoring: str  # a hash of everything else that scores depend on
    teacher: Teacher | None = None  # a model whose outputs are learned, too; None: the labels alone
    distillation: DistillationSettings = dataclasses.field(default_factory=DistillationSettings)

    @classmethod
    def from_job(cls, job: FinetuneJob) -> "FineTuner":
        """Read the rows and the initial checkpoint of a job.

        InputError: the rows are of another task, a model cannot be read, or rows without labels have no teacher.
        StageError: more than `job.max_unknown_fraction` of the texts' tokens are unknown to the vocabulary.
        """
        spec = read_spec(job)
        init = _init_checkpoint(job, spec.task)
        settings = with_head_of(job.task_settings, init)
        teacher = Teacher.read(job.teacher, spec.task, settings, init) if job.teacher else None
        depends_on = {**weights_of(job), "training": None, "labels": spec.task.labels, "init": digest_of(init)}
        depends_on["teacher"] = digest_of(teacher.folder) if teacher else None
        learned = [split for split in ("train", EVAL, UNLABELLED) if split in spec.counts]
        files = [f"{job.rows}/Split-{split}" for split in learned]
        identity = run_folder("", depends_on, files)
        if teacher:
            answered = {"settings": dataclasses.asdict(teacher.trained.settings), "code": job.code}
            answered |= {name: depends_on[name] for name in ("task", "labels", "teacher")}
            folder = run_folder(os.path.join(job.training_root, "teachers"), answered, files)
            teacher = dataclasses.replace(teacher, outputs_dir=folder)
        scoring = run_folder("", {"code": job.stage_code, "settings": dataclasses.asdict(job.task_settings)}, ())
        rows = {split: _rows(f"{job.rows}/Split-{split}") for split in spec.counts}
        if job.max_unknown_fraction is not None:
            checked = [row for split in ("train", EVAL) for row in rows[split][:_MAX_CHECKED]]
            check_knows(init, checked, job.max_unknown_fraction)
        if unlabelled := rows.pop(UNLABELLED, None):
            if teacher is None:
                raise InputError(f"{len(unlabelled):,} rows have no labels; give the --teacher that answers them")
            rows["train"] += teacher.labelled(unlabelled, job.training.eval_batch_size)
        return cls(spec.task, settings, init, rows, job.training_root, identity, scoring, teacher, job.distillation)

    def folder(self, config: FineTuningConfig) -> str:
        """The folder of a training, by which a killed one resumes and a finished one is reused."""
        return run_folder(self.root, {"fine_tuner": self.identity, "training": weights_of(config)}, ())

    def train(self, config: FineTuningConfig, devices: Devices | None = None) -> TrainedTask:
        """Train a model, or load a finished training from its checkpoint."""
        # Models are in reference cycles, so the previous one would stay in memory.
        gc.collect()
        train, held_out = self.rows["train"], self.rows[EVAL]
        folder = self.folder(config)
        learned: dict[str, Any] = {"teacher": self.teacher, "distillation": self.distillation} if self.teacher else {}
        model = fine_tune(self.task, self.settings, config, self.init, train, held_out, folder, devices, **learned)
        return TrainedTask(model, self.task, self.settings, self.init.known_tokenizer())

    def scores(self, trained: TrainedTask, batch_size: int) -> dict[str, float]:
        """The official scores of a model on the held-out rows; the task's main score comes first."""
        rows = self.rows[EVAL]
        return score(self.task, [row.gold for row in rows], trained.answers(rows, batch_size))

    def held_out_scores(self, config: FineTuningConfig) -> dict[str, float]:
        """The scores of a training, which runs unless they are known; nan if it diverges."""
        # They stay in its folder, even if the model is removed.
        path = os.path.join(self.folder(config), f"{self.scoring}-{HELD_OUT_SCORES_FILE}")
        if epath.Path(path).exists():
            scores = json.loads(epath.Path(path).read_text())
            return {name: math.nan if value is None else value for name, value in scores.items()}
        try:
            scores = self.scores(self.train(config), config.eval_batch_size)
        except Diverged as error:
            print(error, flush=True)
            scores = dict.fromkeys(self.task.metrics, math.nan)
        atomic_write_anywhere(path, json_text(scores, sort_keys=True) + "\n")
        return scores

    def forget_model(self, config: FineTuningConfig) -> None:
        """Remove the checkpoints of a training; its logs and scores stay."""
        forget(self.folder(config))


def read_spec(job: FinetuneJob) -> TaskSpec:
    """Read the spec of a job's rows; InputError if they are of another task."""
    spec = TaskSpec.load(job.rows)
    if spec.task.name != task_of(job.task).name:
        raise InputError(f"{job.rows} has the rows of {spec.task.name}, not of {job.task}: make them again")
    return spec


def _init_checkpoint(job: FinetuneJob, task: Task) -> ModelFolder:
    if job.init:
        return read_init(job.init, job.cased, task)
    if job.model is None or not job.vocabulary:
        raise InputError("the job has no initial checkpoint: give init, or model and vocabulary to draw all weights")
    tokens, vocabulary = read_vocabulary(job.vocabulary)
    tokenizer = make_tokenizer(tokens, vocabulary) if vocabulary["algorithm"] == "wordpiece" else None
    if not isinstance(tokenizer, BertTokenizer):
        raise InputError(f"{job.vocabulary}: the vocabulary is not of word pieces; a BERT's is")
    return init_checkpoint(job.model, tokenizer)


def _rows(folder: str) -> list[TaskRow]:
    # One file after another: the order of the predictions.
    records = itertools.chain.from_iterable(records_of_files([path]) for path in shard_files(folder))
    return list(read_rows(record.data for record in records))
