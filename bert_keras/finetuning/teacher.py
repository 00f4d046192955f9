"""A teacher: a larger fine-tuned model, whose outputs for the rows a smaller one learns (knowledge distillation).

It computes each row once, before the training, into a file: any number of trainings, of any students on both backends,
cost nothing more.
"""

import dataclasses
import io
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from etils import epath

from bert_keras.convert.formats import read_folder
from bert_keras.convert.model_folder import ModelFolder, check_tokenizer
from bert_keras.data.array_batches import TEACHER_OUTPUTS, TEACHER_SPANS, TEACHER_TOKENS
from bert_keras.errors import InputError
from bert_keras.files import atomic_write_anywhere
from bert_keras.finetuning.init_checkpoint import continues, initialize_encoder
from bert_keras.finetuning.training import TrainedTask
from bert_keras.notices import notify, tell
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tasks.task_types import task_type_of

# Rows that are timed, in batches of so many, and turns.
_TIMED, _BATCH, _TURNS = 128, 16, 2


@dataclasses.dataclass(frozen=True, eq=False)
class Teacher:
    """A teacher of a task.

    Attributes:
        folder: the teacher.
        trained: its model, with the student's settings of rows, and the teacher's head or pooling.
        outputs_dir: folder that its outputs are kept in and read from; "": nowhere.
    """

    folder: ModelFolder
    trained: TrainedTask
    outputs_dir: str = ""

    @classmethod
    def read(cls, directory: str, task: Task, settings: TaskSettings, student: ModelFolder) -> "Teacher":
        """Read the folder of a teacher, in any format that `bert-tfx convert` reads.

        Args:
            directory: of a model for a task of the same type, with the same labels in any order; for vectors of texts
                of any encoder as wide as the student.
            task: the student's, with its labels.
            settings: how rows become features.
            student: its initial model.

        Raises:
            InputError: it cannot be read, or cannot teach the task.
        """
        folder = read_folder(directory)
        for remark in folder.remarks:
            notify(f"teacher: {remark}")
        tokenizer, config = folder.known_tokenizer(), folder.config
        check_tokenizer(tokenizer, config.vocab_size)
        if task.contrastive:
            if config.hidden_size != student.config.hidden_size:
                raise InputError(
                    f"{directory}: its vectors have {config.hidden_size} numbers, the student's "
                    f"{student.config.hidden_size}; give a teacher as wide as --init"
                )
            known, pooling = folder.settings, folder.embedding.pooling
            settings = dataclasses.replace(
                settings, pooling=known.pooling if known else settings.pooling if pooling == "none" else pooling
            )
        elif not continues(folder, task):
            known_task = folder.task
            what = f"{known_task.name} with the labels {', '.join(known_task.labels)}" if known_task else "no task"
            wanted = f"the labels {', '.join(task.labels)}" if task.labels else f"the type of {task.name}"
            raise InputError(f"{directory}: is a model of {what}; a teacher must be fine-tuned for {wanted}")
        elif folder.settings:
            settings = dataclasses.replace(settings, head=folder.settings.head)
            if task.kind == "regression" and folder.settings.activation == "sigmoid":
                notify(f"teacher {directory}: its numbers are logits, before a sigmoid; labels must be on that scale")
        if settings.max_seq_length > config.max_position_embeddings:
            raise InputError(
                f"{directory}: has positions for {config.max_position_embeddings} tokens; task.max_seq_length is "
                f"{settings.max_seq_length}"
            )
        model = task_type_of(task).create_model(config, task, settings, 0, folder.architecture.embedding_size)
        model.build()
        initialize_encoder(model, folder, task)
        return cls(folder, TrainedTask(model, task, settings, tokenizer))

    def arrays(self, split: str, rows: Sequence[TaskRow], ids: np.ndarray, batch_size: int) -> dict[str, np.ndarray]:
        """The outputs for a split's rows, as the objective takes them (`bert_keras.objectives.distillation`).

        `ids` are the student's `input_ids`, int32 [N, ..., T].

        Raises:
            InputError: they are not finite: the weights are damaged; or they are of tokens, but of others.
        """
        by_token = self.trained.task.kind in ("tagging", "span")  # so another student may need another answer
        path = epath.Path(self.outputs_dir, f"{split}{f'-{zlib.crc32(ids.tobytes()):08x}' if by_token else ''}.npz")
        if self.outputs_dir and path.exists():
            with path.open("rb") as file, np.load(file) as known:
                return dict(known)
        tell(f"the teacher answers the {len(rows):,} rows of {split}")
        outputs, features = self.trained.outputs(rows, batch_size)
        if by_token and not np.array_equal(features.arrays["input_ids"], ids):
            raise InputError(
                f"{self.folder.path}: has another vocabulary than --init, and answers of {self.trained.task.name} "
                "are learned token by token; give a teacher with the student's vocabulary"
            )
        arrays = _named(outputs if isinstance(outputs, dict) else {"": outputs}, self.trained.task)
        if not all(np.isfinite(values).all() for values in arrays.values()):
            raise InputError(f"{self.folder.path}: answers rows with NaN or infinity; give a teacher that works")
        if self.outputs_dir:
            archive = io.BytesIO()  # a file of a store cannot seek
            np.savez(archive, **arrays)
            atomic_write_anywhere(str(path), archive.getvalue())
        return arrays

    def labelled(self, rows: Sequence[TaskRow], batch_size: int) -> list[TaskRow]:
        """Rows without golds, with the teacher's answers as theirs; those of vectors need none."""
        if self.trained.task.contrastive or not rows:
            return list(rows)
        golds = self.trained.golds(rows, batch_size)
        return [dataclasses.replace(row, gold=gold) for row, gold in zip(rows, golds, strict=True)]


def costs(models: Mapping[str, TrainedTask], rows: Sequence[TaskRow]) -> dict[str, dict[str, float]]:
    """Return of each model the CPU time of a row (`cpu_ms`) and the size of its float32 weights (`megabytes`).

    The time is that of the encoder and its head in batches of 16, after a first call; the models take turns.
    """
    from bert_keras.finetuning.prediction import compiled, predict

    calls: dict[str, Callable[[], Any]] = {}
    for name, trained in models.items():
        unlabelled = [dataclasses.replace(row, gold=None) for row in rows[:_TIMED]]
        kind = task_type_of(trained.task)
        features = kind.features(unlabelled, trained.task, trained.settings, trained.tokenizer)
        calls[name] = partial(predict, trained.model, features, _BATCH, compiled(trained.model, features))
        calls[name]()
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for name in [*models] * _TURNS:
        began = time.process_time()
        calls[name]()
        seconds[name].append(time.process_time() - began)
    return {
        name: {
            "cpu_ms": min(seconds[name]) / min(_TIMED, len(rows)) * 1e3,
            "megabytes": sum(4 * math.prod(weight.shape) for weight in trained.model.weights) / 1e6,
        }
        for name, trained in models.items()
    }


def _named(outputs: dict[str, np.ndarray], task: Task) -> dict[str, np.ndarray]:
    if task.kind == "span":
        return {key: outputs[name] for name, key in TEACHER_SPANS.items()}
    if task.kind == "tagging":
        return {TEACHER_TOKENS: np.moveaxis(outputs[""], 1, 2)}
    return {TEACHER_OUTPUTS: outputs[""]}
