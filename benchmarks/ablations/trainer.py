"""Runs units of an ablation: text -> examples -> pre-trained model; rows -> fine-tuned model -> scores."""

from __future__ import annotations

import dataclasses
import gc
import glob
import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from benchmarks.ablations.experiment import MINIMAL_PAIRS
from benchmarks.ablations.recipes import AblationRecipe
from benchmarks.ablations.results import Results, Unit
from benchmarks.ablations.runner import PretrainingStep
from bert_keras.convert.model_folder import ModelFolder
from bert_keras.data.example_format import EXAMPLE_SPEC_FILE, ExampleSpec
from bert_keras.data.tfrecord_batches import shard_files
from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import init_checkpoint, read_init
from bert_keras.finetuning.training import TrainedTask, fine_tune
from bert_keras.jobs import PretrainJob
from bert_keras.models.electra import ElectraForPreTraining
from bert_keras.models.head_start import head_start
from bert_keras.objectives.registry import pretraining_model
from bert_keras.pretraining import load_tokenizer, pretrain
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.rows import TaskRow, read_rows
from bert_keras.tasks.settings import TASK_SPEC_FILE, TaskSpec
from bert_keras.tasks.table import Task, task_of
from bert_keras.tokenizers.vocabulary_files import VOCABULARY_FILE
from bert_keras.training.checkpoints import assign_arrays
from components.code_version import PRETRAINING, weights_fingerprint
from components.corpus_gen.inputs import InputFile, find_inputs, fingerprint, list_files
from components.evaluator import minimal_pairs
from components.task_example_gen.generate import generate_rows
from components.task_example_gen.split_files import EVAL, TRAIN, find_splits, input_files
from pipeline.examples.beam_jobs import BEAM_PIPELINE_ARGS
from pipeline.examples.generate import ExampleJob, generate
from pipeline.report.figures.curves import HELD_OUT, read_log

_MODEL, _LOGS, _TRAINING = "model", "logs", "training"
# Folder beside the examples: vocabularies, shared by arms with different objectives.
_VOCABULARIES = "vocabularies"


class LocalTrainer:
    """Runs units of work on this machine.

    Args:
        corpus: files, folders or globs of text.
        tasks: folder of the official files, by task.
        init: folder of a model that all arms start from; empty: pre-train the arms.
        results: folder of examples and rows, which units share.
        recipe: the scale; its corpus settings are used to read the text.

    Attributes:
        data: a fingerprint of the files of each given task.
        given_model: whether all arms start from a given model.
        texts: a fingerprint of the pre-training corpus, or of the given model.
        shape: a fingerprint of the given model's architecture and vocabulary, which random weights need; "" without it.

    Raises:
        InputError: text, a task's files or the model are missing.
    """

    def __init__(
        self, corpus: Sequence[str], tasks: Mapping[str, str], init: str, results: Results, recipe: AblationRecipe
    ):
        # Each unit traces its own functions, about which TensorFlow would warn.
        tf.get_logger().setLevel("ERROR")
        self._corpus, self._init, self._results = corpus, init, results
        self._splits = {}
        pairs, limit = [tasks[MINIMAL_PAIRS]] if MINIMAL_PAIRS in tasks else [], recipe.ablation.max_pairs
        self._pairs = minimal_pairs.read_pairs(pairs, "--task", limit) if pairs else []
        for name, folder in tasks.items():
            if name == MINIMAL_PAIRS:
                continue
            splits = find_splits(task_of(name), folder)
            self._splits[name] = {split: splits[split] for split in (TRAIN, EVAL) if split in splits}
        self.data = {name: fingerprint(input_files(splits)) for name, splits in self._splits.items()}
        if pairs:
            self.data[MINIMAL_PAIRS] = f"{fingerprint(list_files(pairs, '--task'))}, {limit}"
        self.given_model, self.shape = bool(init), ""
        # A cache of one initial checkpoint: jobs with different seeds follow each other.
        self._read: tuple[PretrainingStep | None, ModelFolder] | None = None
        if init:
            given = read_init(init)
            self._read = None, given
            needed = [dataclasses.asdict(given.config), given.family, list(given.known_tokenizer().vocabulary)]
            self.shape = hashlib.sha256(json.dumps(needed).encode()).hexdigest()
            files = (path for path in sorted(glob.glob(os.path.join(glob.escape(init), "*"))) if os.path.isfile(path))
            self.texts = fingerprint([InputFile(path, os.path.getsize(path)) for path in files])
        else:
            self.texts = fingerprint(find_inputs(corpus, recipe.corpus))

    def check(self, recipe: AblationRecipe, task: str) -> None:
        """Make a task's rows, to report bad ones before hours of pre-training.

        Raises:
            InputError: a bad row, or too few for a step.
        """
        if task == MINIMAL_PAIRS:
            return
        spec = TaskSpec.load(self._rows_folder(recipe, task))
        recipe.finetuning.training_config(spec.counts[TRAIN])

    def pretrain(self, recipe: AblationRecipe, folder: str) -> dict[str, float]:
        """Pre-train into a folder; return the held-out metrics of the last step."""
        examples = self._examples(recipe)
        job = PretrainJob(
            examples=(examples,),
            model=dataclasses.replace(recipe.model, vocab_size=ExampleSpec.load(examples).vocab_size),
            training=recipe.training,
            pretraining=recipe.pretraining,
            output_dir=os.path.join(folder, _MODEL),
            logs_dir=os.path.join(folder, _LOGS),
            training_root=os.path.join(folder, _TRAINING),
            code=weights_fingerprint(PRETRAINING),
        )
        # Left by a killed export.
        shutil.rmtree(job.output_dir, ignore_errors=True)
        pretrain(job)
        last = [line for line in read_log(os.path.join(folder, _LOGS)) if line["kind"] == HELD_OUT][-1]
        figures = {name: value for name, value in last.items() if name not in ("kind", "time", "step")}
        if "mlm_loss" in figures:
            figures["mlm_perplexity"] = math.exp(figures["mlm_loss"])
        gc.collect()
        return figures

    def fine_tune(
        self, recipe: AblationRecipe, task: str, start: PretrainingStep | None, folder: str
    ) -> dict[str, float]:
        """Fine-tune a model; return the scores of the held-out rows. `folder` is temporary.

        For MINIMAL_PAIRS nothing is fine-tuned: the pre-trained model's; none if it has no likelihoods of them.
        """
        if task == MINIMAL_PAIRS:
            return self._score_pairs(os.path.join(start.folder, _MODEL) if start else self._init)
        if self._read is None or self._read[0] != start:
            self._read = start, self.init_checkpoint(start)
        init = self._read[1]
        labelled, rows = self._rows(recipe, task)
        model = fine_tune(labelled, recipe.task, recipe.finetuning, init, rows[TRAIN], rows[EVAL], folder)
        trained = TrainedTask(model, labelled, recipe.task, init.known_tokenizer())
        answers = trained.answers(rows[EVAL], recipe.finetuning.eval_batch_size)
        shutil.rmtree(folder)
        gc.collect()
        return score(labelled, [row.gold for row in rows[EVAL]], answers)

    def _score_pairs(self, model: str) -> dict[str, float]:
        """The mean accuracy of the paradigms; nothing, with a warning, if the model cannot score a pair."""
        try:
            scores = minimal_pairs.score_pairs(model, self._pairs)
        except InputError as error:
            logging.getLogger(__name__).warning("minimal pairs are left out: %s", error)
            return {}
        paradigms = minimal_pairs.figures(self._pairs, scores)["paradigms"].values()
        return {"accuracy": sum(paradigm["accuracy"] for paradigm in paradigms) / len(paradigms)}

    def _examples(self, recipe: AblationRecipe) -> str:
        """Make the examples of a recipe if they are missing; return their folder. One text has one vocabulary."""
        size = recipe.model.vocab_size
        unit = Unit.of("examples", recipe, texts=self.texts, vocab_size=size)
        folder = self._results.folder(unit)
        if os.path.exists(os.path.join(folder, EXAMPLE_SPEC_FILE)):
            return folder
        settings = {name: unit.settings[name] for name in ("corpus", "vocabulary", "inputs")}
        vocabulary = os.path.join(self._results.folder(Unit(_VOCABULARIES, settings)), VOCABULARY_FILE)
        job = ExampleJob(recipe.corpus, recipe.vocabulary, recipe.examples)
        known = vocabulary if os.path.exists(vocabulary) else None
        os.makedirs(folder, exist_ok=True)
        generate(self._corpus, folder, job, vocab_file=known, vocab_size=size, beam_args=BEAM_PIPELINE_ARGS)
        if known is None and recipe.vocabulary.algorithm == "wordpiece":
            os.makedirs(os.path.dirname(vocabulary), exist_ok=True)
            shutil.copyfile(os.path.join(folder, VOCABULARY_FILE), vocabulary + ".part")
            os.replace(vocabulary + ".part", vocabulary)
        return folder

    def _rows(self, recipe: AblationRecipe, name: str) -> tuple[Task, dict[str, list[TaskRow]]]:
        """A task with its labels, and its training and evaluation rows."""
        folder = self._rows_folder(recipe, name)
        rows = {}
        for split in (TRAIN, EVAL):
            shards = shard_files(f"{folder}/Split-{split}")
            rows[split] = list(read_rows(tf.data.TFRecordDataset(shards).as_numpy_iterator()))
        return TaskSpec.load(folder).task, rows

    def _rows_folder(self, recipe: AblationRecipe, name: str) -> str:
        """Make a task's rows if they are missing; return their folder."""
        folder = self._results.folder(Unit.of("rows", recipe, task=name, files=self.data[name]))
        if not os.path.exists(os.path.join(folder, TASK_SPEC_FILE)):
            generate_rows(task_of(name), self._splits[name], recipe.data, folder)
        return folder

    def init_checkpoint(self, start: PretrainingStep | None) -> ModelFolder:
        """The encoder after a step of a pre-training; None: the given model.

        Raises:
            InputError: the checkpoint is missing, or cannot be fine-tuned.
        """
        if start is None:
            return read_init(self._init)
        if not start.folder:
            return dataclasses.replace(read_init(self._init), load=None)
        if start.step is None:
            return read_init(os.path.join(start.folder, _MODEL))
        examples = self._examples(start.recipe)
        spec, recipe = ExampleSpec.load(examples), start.recipe
        config = dataclasses.replace(recipe.model, vocab_size=spec.vocab_size)
        if start.step == 0:
            return init_checkpoint(config, load_tokenizer(examples, spec))
        create_model, _ = pretraining_model(recipe.pretraining, spec.objective, config, recipe.training.seed)
        model = create_model()
        if recipe.pretraining.head_start:
            # For the variables that are trained with one.
            head_start(model, np.zeros(spec.vocab_size), np.zeros((spec.vocab_size, 1)))
        files = glob.glob(os.path.join(glob.escape(start.folder), _TRAINING, "*", "checkpoints", "ckpt-*.npz"))
        path = next((path for path in files if path.endswith(f"-{start.step}.npz")), None)
        if path is None:
            raise InputError(
                f"{start.folder} has no checkpoint of step {start.step}; remove it and {start.folder}.json to train "
                "again"
            )
        with np.load(path) as arrays:
            assign_arrays(model, None, {name: arrays[name] for name in arrays if not name.startswith("optimizer/")})
        encoder = (model.discriminator if isinstance(model, ElectraForPreTraining) else model).backbone
        return init_checkpoint(encoder.config, load_tokenizer(examples, spec), encoder)
