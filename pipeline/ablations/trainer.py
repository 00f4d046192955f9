"""What does the units of the ablations: text -> examples -> pre-trained model; rows -> fine-tuned model -> scores."""

from __future__ import annotations

import dataclasses
import gc
import glob
import math
import os
import shutil
import types
from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_keras.electra import ElectraForPreTraining
from bert_keras.errors import InputError
from bert_keras.features import EXAMPLE_SPEC_FILE, VOCABULARY_FILE, ExampleSpec
from bert_keras.input_pipeline import shard_files
from bert_keras.optimizer import create_optimizer, num_encoder_layers
from bert_keras.pretrain import load_tokenizer, run_fn
from bert_keras.pretraining_models import pretraining_model
from bert_keras.tasks.rows import TaskRow, read_rows
from bert_keras.tasks.scores import score
from bert_keras.tasks.settings import TASK_SPEC_FILE, TaskSpec
from bert_keras.tasks.start import Start, read_start
from bert_keras.tasks.table import Task, task_of
from bert_keras.tasks.training import TrainedTask, fine_tune
from components.corpus_gen.inputs import InputFile, find_inputs, fingerprint
from components.task_example_gen.files import EVAL, TRAIN, find_splits, input_files
from components.task_example_gen.generate import generate_rows
from pipeline.ablations.results import Results, Unit
from pipeline.ablations.run import Begin
from pipeline.ablations.scales import AblationRecipe
from pipeline.example_generation import BEAM_PIPELINE_ARGS, ExampleJob, generate
from pipeline.report.curves import HELD_OUT, read_log

_MODEL, _LOGS, _TRAINING = "model", "logs", "training"
# Beside the examples: the vocabularies, which arms of any objective share.
_VOCABULARIES = "vocabularies"


class LocalTrainer:
    """A `pipeline.ablations.run.Trainer` on this machine.

    Args:
        corpus: files, folders or globs of text.
        tasks: by name, the folder of the official files.
        init: the folder of a model that all arms start from; empty: they are pre-trained.
        results: where examples and rows are kept, which several units share.
        recipe: the scale; how text is read.

    Raises:
        InputError: text, a task's files or the model are not there.
    """

    def __init__(
        self, corpus: Sequence[str], tasks: Mapping[str, str], init: str, results: Results, recipe: AblationRecipe
    ):
        # Each unit traces functions of its own, which TensorFlow takes for a mistake.
        tf.get_logger().setLevel("ERROR")
        self._corpus, self._init, self._results = corpus, init, results
        self._splits = {}
        for name, folder in tasks.items():
            splits = find_splits(task_of(name), folder)
            self._splits[name] = {split: splits[split] for split in (TRAIN, EVAL) if split in splits}
        self.data = {name: fingerprint(input_files(splits)) for name, splits in self._splits.items()}
        self.given_model = bool(init)
        # What is read last is asked for again: seeds follow each other.
        self._start: tuple[Begin | None, Start] | None = None
        if init:
            self._start = None, read_start(init)
            files = (path for path in sorted(glob.glob(os.path.join(glob.escape(init), "*"))) if os.path.isfile(path))
            self.texts = fingerprint([InputFile(path, os.path.getsize(path)) for path in files])
        else:
            self.texts = fingerprint(find_inputs(corpus, recipe.corpus))

    def check(self, recipe: AblationRecipe, task: str) -> None:
        """Makes a task's rows: what is wrong with them is told before hours of pre-training.

        Raises:
            InputError: a bad row, or too few for a step.
        """
        spec = TaskSpec.load(self._rows_folder(recipe, task))
        recipe.finetuning.training_config(spec.counts[TRAIN])

    def pretrain(self, recipe: AblationRecipe, folder: str) -> dict[str, float]:
        """See `pipeline.ablations.run.Trainer`."""
        examples = self._examples(recipe)
        model = dataclasses.replace(recipe.model, vocab_size=ExampleSpec.load(examples).vocab_size)
        # What a killed export left.
        shutil.rmtree(os.path.join(folder, _MODEL), ignore_errors=True)
        run_fn(
            types.SimpleNamespace(
                train_files=[os.path.join(examples, "Split-train", "*")],
                eval_files=[os.path.join(examples, "Split-eval", "*")],
                serving_model_dir=os.path.join(folder, _MODEL),
                model_run_dir=os.path.join(folder, _LOGS),
                custom_config={
                    "model": dataclasses.asdict(model),
                    "training": dataclasses.asdict(recipe.training),
                    "pretraining": dataclasses.asdict(recipe.pretraining),
                    "training_root": os.path.join(folder, _TRAINING),
                },
            )
        )
        last = [line for line in read_log(os.path.join(folder, _LOGS)) if line["kind"] == HELD_OUT][-1]
        figures = {name: value for name, value in last.items() if name not in ("kind", "time", "step")}
        if "mlm_loss" in figures:
            figures["mlm_perplexity"] = math.exp(figures["mlm_loss"])
        gc.collect()
        return figures

    def fine_tune(self, recipe: AblationRecipe, task: str, begin: Begin | None, folder: str) -> dict[str, float]:
        """See `pipeline.ablations.run.Trainer`."""
        if self._start is None or self._start[0] != begin:
            self._start = begin, self.start(begin)
        start = self._start[1]
        labelled, rows = self._rows(recipe, task)
        model = fine_tune(labelled, recipe.task, recipe.finetuning, start, rows[TRAIN], rows[EVAL], folder)
        trained = TrainedTask(model, labelled, recipe.task, start.tokenizer)
        answers = trained.answers(rows[EVAL], recipe.finetuning.eval_batch_size)
        shutil.rmtree(folder)
        gc.collect()
        return score(labelled, [row.gold for row in rows[EVAL]], answers)

    def _examples(self, recipe: AblationRecipe) -> str:
        """The folder of the examples of a recipe; all that are made of one text have one vocabulary."""
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
        if known is None:
            os.makedirs(os.path.dirname(vocabulary), exist_ok=True)
            shutil.copyfile(os.path.join(folder, VOCABULARY_FILE), vocabulary + ".part")
            os.replace(vocabulary + ".part", vocabulary)
        return folder

    def _rows(self, recipe: AblationRecipe, name: str) -> tuple[Task, dict[str, list[TaskRow]]]:
        """A task with its labels, and its rows to train and to evaluate on."""
        folder = self._rows_folder(recipe, name)
        rows = {}
        for split in (TRAIN, EVAL):
            shards = shard_files(f"{folder}/Split-{split}/*")
            rows[split] = list(read_rows(tf.data.TFRecordDataset(shards).as_numpy_iterator()))
        return TaskSpec.load(folder).task, rows

    def _rows_folder(self, recipe: AblationRecipe, name: str) -> str:
        """The folder of a task's rows, made if it is not there."""
        folder = self._results.folder(Unit.of("rows", recipe, task=name, files=self.data[name]))
        if not os.path.exists(os.path.join(folder, TASK_SPEC_FILE)):
            generate_rows(task_of(name), self._splits[name], recipe.data, folder)
        return folder

    def start(self, begin: Begin | None) -> Start:
        """What a fine-tuning begins with: what was exported, or a checkpoint; None: the model that was given.

        Raises:
            InputError: it is not there, or cannot be fine-tuned.
        """
        if begin is None:
            return read_start(self._init)
        if begin.step is None:
            return read_start(os.path.join(begin.folder, _MODEL))
        examples = self._examples(begin.recipe)
        spec, recipe = ExampleSpec.load(examples), begin.recipe
        config = dataclasses.replace(recipe.model, vocab_size=spec.vocab_size)
        if begin.step == 0:
            return Start(config, load_tokenizer(examples, spec))
        create_model, _ = pretraining_model(recipe.pretraining, spec.objective, config, recipe.training.seed)
        model = create_model()
        found = glob.glob(os.path.join(glob.escape(begin.folder), _TRAINING, "*", "checkpoints", "ckpt-*.index"))
        path = next((path for path in found if path.endswith(f"-{begin.step}.index")), None)
        if path is None:
            raise InputError(
                f"{begin.folder} has no checkpoint of step {begin.step}; remove it and {begin.folder}.json, and it is "
                "trained again"
            )
        # As the training loop writes it: the layers of a list are found by their optimizer alone.
        optimizer = create_optimizer(recipe.training, num_encoder_layers(model.weights))
        optimizer.build(model.trainable_variables)
        step = tf.Variable(0, dtype=tf.int64)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
        checkpoint.restore(path.removesuffix(".index")).assert_existing_objects_matched()
        encoder = (model.discriminator if isinstance(model, ElectraForPreTraining) else model).backbone
        return Start(encoder.config, load_tokenizer(examples, spec), encoder)
