"""What trainings that are compared with each other have in common: rows, features, the encoder they begin with."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from rich.console import Console

from bert_keras.config import BertConfig
from bert_keras.errors import Diverged, InputError
from bert_keras.features import read_vocabulary
from bert_keras.input_pipeline import shard_files
from bert_keras.run_folder import run_folder
from bert_keras.tasks.rows import TaskRow, read_rows
from bert_keras.tasks.scores import score
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings, TaskSpec
from bert_keras.tasks.start import Start, read_start
from bert_keras.tasks.table import Task
from bert_keras.tasks.training import TrainedTask, fine_tune
from bert_keras.tokenizer import BertTokenizer, make_tokenizer

# In the folder of a training that a search has made: its scores on the held-out rows.
HELD_OUT_SCORES_FILE = "held_out_scores.json"
EVAL = "eval"


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """Everything that decides a fine-tuned model, but for how it is trained.

    Attributes:
        task: with its labels.
        settings: how rows become features.
        start: the encoder.
        rows: of each split; `eval` are the held-out ones.
        root: under it, each training has a folder of checkpoints and logs.
        identity: a hash of all that.
    """

    task: Task
    settings: TaskSettings
    start: Start
    rows: Mapping[str, Sequence[TaskRow]]
    root: str
    identity: str

    def folder(self, config: FineTuningConfig) -> str:
        """Of one training: a killed one finds it again, and so does whoever asks for the same model."""
        return run_folder(self.root, {"experiment": self.identity, "training": dataclasses.asdict(config)}, ())

    def train(self, config: FineTuningConfig, strategy: tf.distribute.Strategy | None = None) -> TrainedTask:
        """A trained model; one whose training is finished comes from its checkpoint."""
        # Models are in reference cycles: the one before would lie in memory beside this one.
        gc.collect()
        train, held_out = self.rows["train"], self.rows[EVAL]
        folder = self.folder(config)
        model = fine_tune(self.task, self.settings, config, self.start, train, held_out, folder, strategy)
        return TrainedTask(model, self.task, self.settings, self.start.tokenizer)

    def scores(self, trained: TrainedTask, batch_size: int) -> dict[str, float]:
        """The official scores of a model on the held-out rows; the first of the task's is what it is judged by."""
        rows = self.rows[EVAL]
        return score(self.task, [row.gold for row in rows], trained.answers(rows, batch_size))

    def held_out_scores(self, config: FineTuningConfig) -> dict[str, float]:
        """The scores of a training, which is made unless it was before; nan if it diverges.

        They stay in its folder, the model may not.
        """
        path = os.path.join(self.folder(config), HELD_OUT_SCORES_FILE)
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                return json.load(file)
        try:
            scores = self.scores(self.train(config), config.eval_batch_size)
        except Diverged as error:
            Console(highlight=False, soft_wrap=True).print(str(error))
            scores = dict.fromkeys(self.task.metrics, math.nan)
        with tf.io.gfile.GFile(path + ".part", "w") as file:
            file.write(json.dumps(scores, sort_keys=True) + "\n")
        tf.io.gfile.rename(path + ".part", path, overwrite=True)
        return scores

    def forget_model(self, config: FineTuningConfig) -> None:
        """Removes the checkpoints of a training; its logs and scores stay."""
        checkpoints = os.path.join(self.folder(config), "checkpoints")
        if tf.io.gfile.exists(checkpoints):
            tf.io.gfile.rmtree(checkpoints)


def read_spec(fn_args) -> tuple[str, TaskSpec]:
    """Where the rows of `fn_args.train_files` lie, and what they are.

    Raises:
        InputError: they are another task's.
    """
    directory = os.path.dirname(os.path.dirname(fn_args.train_files[0]))
    spec = TaskSpec.load(directory)
    if spec.task.name != fn_args.custom_config["task"]:
        asked = fn_args.custom_config["task"]
        raise InputError(f"{directory} has the rows of {spec.task.name}, not of {asked}: make them again")
    return directory, spec


def read_experiment(fn_args) -> Experiment:
    """The experiment that the arguments of `bert_keras.finetune.run_fn` are of.

    Raises:
        InputError: the rows are another task's, or there is no encoder to begin with.
    """
    custom = fn_args.custom_config
    directory, spec = read_spec(fn_args)
    sources = [os.path.join(custom[name], "*") for name in ("init", "vocabulary") if custom.get(name)]
    identity = run_folder(
        "",
        {name: custom.get(name) for name in ("task", "task_settings", "cased", "model")},
        [f"{directory}/*", f"{directory}/Split-train/*", f"{directory}/Split-eval/*", *sources],
    )
    return Experiment(
        spec.task,
        TaskSettings(**custom["task_settings"]),
        _start(custom),
        {split: _rows(f"{directory}/Split-{split}/*") for split in spec.counts},
        custom["training_root"],
        identity,
    )


def _start(custom: Mapping[str, Any]) -> Start:
    if custom["init"]:
        return read_start(custom["init"], custom.get("cased"))
    tokens, vocabulary = read_vocabulary(custom["vocabulary"])
    tokenizer = make_tokenizer(tokens, vocabulary) if vocabulary["algorithm"] == "wordpiece" else None
    if not isinstance(tokenizer, BertTokenizer):
        raise InputError(f"{custom['vocabulary']}: the vocabulary is not of word pieces; a BERT's is")
    return Start(BertConfig(**custom["model"]), tokenizer)


def _rows(pattern: str) -> list[TaskRow]:
    return list(read_rows(tf.data.TFRecordDataset(shard_files(pattern)).as_numpy_iterator()))
