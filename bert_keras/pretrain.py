"""The Trainer component's entry point: examples in, a trained and exported model out."""

from __future__ import annotations

import os

import tensorflow as tf

from bert_keras.config import BertConfig, ExportSettings, PretrainingSettings, SecondPhase, TrainingConfig
from bert_keras.errors import InputError
from bert_keras.export import export_saved_model
from bert_keras.features import EXAMPLE_SPEC_FILE, ExampleSpec, read_vocabulary
from bert_keras.input_pipeline import DynamicMasking, shard_files
from bert_keras.masking import MaskingVocabulary
from bert_keras.phases import ExampleSet, Phase, phases_of
from bert_keras.pretraining_models import pretraining_model
from bert_keras.run_folder import copy_logs, run_folder
from bert_keras.strategy import create_strategy, worker_number
from bert_keras.tokenizer import BertTokenizer
from bert_keras.training_loop import TrainingLoop


def run_fn(fn_args) -> None:
    """Trains on the examples of `fn_args` and exports to `fn_args.serving_model_dir`.

    `fn_args.custom_config` holds `model`, `training` and, if they are there, `second_phase` and `pretraining` (fields
    of `BertConfig`, `TrainingConfig`, `SecondPhase` and `PretrainingSettings`), and `training_root`, the folder under
    which the run's checkpoints live. They live outside the component's outputs, which TFX deletes when a component
    fails, in a folder named by a hash of all that the training depends on: a killed run finds its checkpoints again,
    and another recipe or other examples never do. Of several workers, all of which must see the same folders, the first
    one exports. What the model learns is what the examples were made for (`bert_keras.pretraining_models`).

    Raises:
        InputError: the examples do not fit the model; names both numbers and the remedy.
    """
    custom = fn_args.custom_config
    model_config, training = BertConfig(**custom["model"]), TrainingConfig(**custom["training"])
    second = SecondPhase(**custom.get("second_phase", {}))
    settings = PretrainingSettings(**custom.get("pretraining", {}))
    # Before anything else runs: several workers are refused afterwards.
    strategy = create_strategy(training, second)
    found = [
        (os.path.dirname(os.path.dirname(train)), train, held_out)
        for train, held_out in zip(fn_args.train_files, fn_args.eval_files, strict=True)
    ]
    # Those of the second phase are the longer ones.
    found.sort(key=lambda artifact: ExampleSpec.load(artifact[0]).max_seq_length)
    examples = [_example_set(*artifact, model_config) for artifact in found]
    learned = examples[-1].spec.objective
    if any(one.spec.objective != learned for one in examples):
        raise InputError(
            f"the examples were made with examples.objective={[one.spec.objective for one in examples]}; both phases "
            "must have the same"
        )
    phases = phases_of(training, second, examples)
    for phase in phases:
        check_enough_examples(phase)
    depends_on = {name: custom.get(name) for name in ("model", "training", "second_phase", "pretraining")}
    directory = run_folder(custom["training_root"], depends_on, [train for _, train, _ in found])
    create_model, objective = pretraining_model(settings, learned, model_config, training.seed)
    model = TrainingLoop(create_model, objective, training, phases, directory, strategy).run()
    if worker_number(strategy):
        return
    last, _, _ = found[-1]
    export_saved_model(
        model,
        load_tokenizer(last, examples[-1].spec),
        fn_args.serving_model_dir,
        examples[-1].spec.layout,
        objective,
        ExportSettings(**custom.get("export", {})),
    )
    # What the model was made for goes with it.
    tf.io.gfile.copy(os.path.join(last, EXAMPLE_SPEC_FILE), os.path.join(fn_args.serving_model_dir, EXAMPLE_SPEC_FILE))
    copy_logs(directory, fn_args.model_run_dir)


def _example_set(examples_dir: str, train_pattern: str, eval_pattern: str, model: BertConfig) -> ExampleSet:
    """The examples of one artifact, which must fit the model."""
    spec = ExampleSpec.load(examples_dir)
    check_examples_fit(spec, model)
    masking = None
    if spec.masking.when == "dynamic":
        masking = DynamicMasking(spec.masking, MaskingVocabulary.of(load_tokenizer(examples_dir, spec)))
    return ExampleSet(spec, shard_files(train_pattern), shard_files(eval_pattern), masking)


def check_examples_fit(spec: ExampleSpec, model: BertConfig) -> None:
    """Refuses by name what would fail inside a kernel (FACTS B: users' complaints 21, 22)."""
    if spec.vocab_size != model.vocab_size:
        raise InputError(
            f"the examples were made with a vocabulary of {spec.vocab_size} tokens, the model has "
            f"model.vocab_size={model.vocab_size}: make the examples again, or give the model the same size"
        )
    if spec.max_seq_length > model.max_position_embeddings:
        raise InputError(
            f"the examples are {spec.max_seq_length} tokens long, the model has "
            f"model.max_position_embeddings={model.max_position_embeddings}: it cannot read them"
        )


def check_enough_examples(phase: Phase) -> None:
    """Refuses to train on nothing."""
    examples = phase.examples
    if examples.train_examples < phase.batch_size or not examples.eval_examples:
        raise InputError(
            f"{examples.train_examples} training and {examples.eval_examples} held-out examples of "
            f"{examples.max_seq_length} "
            f"tokens are too few for a train_batch_size of {phase.batch_size}: give more text or a smaller batch, "
            "or hold out more with corpus.eval_fraction"
        )


def load_tokenizer(examples_dir: str, spec: ExampleSpec) -> BertTokenizer:
    """The tokenizer that made the examples, from the vocabulary beside them."""
    tokens, vocabulary = read_vocabulary(examples_dir)
    if vocabulary["vocabulary_sha256"] != spec.vocabulary_sha256:
        raise InputError(f"{examples_dir}: the vocabulary beside the examples is not the one that made them")
    if vocabulary["algorithm"] != "wordpiece":
        raise InputError(
            f"the vocabulary is of vocabulary.algorithm={vocabulary['algorithm']!r}, which the exported model cannot "
            "cut text with yet: learn one with 'wordpiece'"
        )
    return BertTokenizer(tokens, vocabulary["lower_case"])
