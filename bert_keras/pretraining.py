"""Pre-training: from examples to an exported model."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
from etils import epath

from bert_keras.data.example_format import EXAMPLE_SPEC_FILE, SHARDS_FILE, ExampleSpec
from bert_keras.data.masking import MaskingVocabulary
from bert_keras.data.tfrecord_batches import DynamicMasking
from bert_keras.errors import InputError
from bert_keras.files import atomic_write_anywhere, json_text
from bert_keras.finetuning.artifact_files import TEACHER_FILE
from bert_keras.jobs import PretrainJob
from bert_keras.models.bilm import BiLM, characters_of
from bert_keras.models.config import BertConfig, Part
from bert_keras.models.head_start import head_start
from bert_keras.notices import notify, tell
from bert_keras.objectives import mlm
from bert_keras.objectives.distillation import Taught, distilled
from bert_keras.objectives.objective import Objective
from bert_keras.objectives.registry import pretraining_model
from bert_keras.objectives.unigram import neighbour_vectors, unigram_model
from bert_keras.saved_model.settings import CONFIG_FILE, FAMILY_FIELD, ORIGIN_FIELD
from bert_keras.tokenizers.protocol import Tokenizer
from bert_keras.tokenizers.vocabulary_files import read_vocabulary
from bert_keras.tokenizers.wordpiece import make_tokenizer
from bert_keras.training.affects import weights_of
from bert_keras.training.backends.child import needs_child, run_child, train_in_child
from bert_keras.training.backends.opening import open_devices
from bert_keras.training.budget import Budget
from bert_keras.training.checkpoint_dir import copy_logs, digest_of, run_folder, tell_what_changed
from bert_keras.training.config import TrainingConfig
from bert_keras.training.loop import TrainingLoop
from bert_keras.training.mixed_examples import mixtures, text_never_read
from bert_keras.training.optimizer import LearnedRows
from bert_keras.training.phases import ExampleSet, Phase, phases_of

# Of the folder of an initial model (`components.trainer.initial_model`): the weights of the model that is trained.
INITIAL_WEIGHTS_FILE = "initial.weights.h5"
# The rows that the source lacks, as `bert_keras.training.optimizer.LearnedRows`.
LEARNED_ROWS_FILE = "learned_rows.json"


def pretrain(job: PretrainJob) -> None:
    """Train on `job.examples` and export the model to `job.output_dir`.

    The checkpoints live outside the output folder, which TFX deletes when a component fails. The objective is that of
    the examples (`bert_keras.objectives.registry`). Of several workers, which must all see the same folders, the first
    one exports. A process without TensorFlow ends with the checkpoints: the same job exports them where it is.

    Raises:
        InputError: the examples do not fit the model; names both numbers and the remedy.
    """
    # First of all: several workers cannot be set up after other operations.
    devices = open_devices(job.training, job.second_phase, job.pretraining.rows_together)
    if by_child := needs_child(job.training):
        train_in_child(__spec__.name, dataclasses.asdict(job))
        if devices.worker:
            return
    loaded = {folder: _example_set(folder, job.model) for folder in job.examples}
    examples = mixtures(loaded, job.training)
    # The first ones of the last phase, whose specification the exported model has.
    judged = max((f for f in loaded if not loaded[f].spec.replay), key=lambda f: loaded[f].max_seq_length)
    spec = examples[-1].spec
    if any(phase.spec.objective != spec.objective for phase in examples):
        raise InputError(
            f"the examples were made with examples.objective={[phase.spec.objective for phase in examples]}; both "
            "phases must have the same"
        )
    phases = phases_of(job.training, job.second_phase, examples)
    for phase in phases:
        check_enough_examples(phase)
    tokenizer = load_tokenizer(judged, spec)
    create_model, objective = pretraining_model(job.pretraining, spec.objective, job.model, job.training.seed)
    learned, teacher, heads = objective, None, 0
    if job.teacher:
        from bert_keras.convert.initial_weights import read_teacher

        longest = ExampleSpec.load(judged).max_seq_length
        teacher = read_teacher(job.teacher, objective.name, job.model, longest, tokenizer, judged)
        heads = job.distillation.heads(job.model, teacher.backbone.config)
        learned = distilled(objective, job.distillation)
    depends_on = {**weights_of(job), "teacher": digest_of(job.teacher) if job.teacher else None}
    # These files have the shards' checksums, which saves reading terabytes.
    inputs = [f"{folder}/{name}" for folder in by_length(job.examples) for name in (EXAMPLE_SPEC_FILE, SHARDS_FILE)]
    inputs += [os.path.join(job.init, name) for name in (INITIAL_WEIGHTS_FILE, LEARNED_ROWS_FILE) if job.init]
    directory = run_folder(job.training_root, depends_on, inputs)
    if not devices.worker:
        tell_what_changed(directory, depends_on)
    learned_rows = _learned_rows(job.init) if job.training.freeze_initial else None

    def create_initial_model() -> keras.Model:
        model = create_model()
        if isinstance(model, BiLM):
            model.backbone.embeddings.characters.assign(characters_of(tokenizer.vocabulary))
        if job.init:
            model.load_weights(os.path.join(job.init, INITIAL_WEIGHTS_FILE))
        elif job.pretraining.head_start:
            train = os.path.join(judged, "Split-train")
            log_p = unigram_model(spec, train)
            head_start(model, log_p, neighbour_vectors(spec, train, log_p, job.model.hidden_size))
        return Taught(model, teacher, heads) if teacher else model

    def create_loop(
        training: TrainingConfig, phases: Sequence[Phase], directory: str, note: Callable[[int], None] | None = None
    ) -> TrainingLoop:
        return TrainingLoop(create_initial_model, learned, training, phases, directory, devices, learned_rows, note)

    training, note = job.training, None
    if training.budget:
        budget = Budget(directory, training, job.second_phase, examples, devices)
        training, second_phase = budget.fix(create_loop)
        phases, note = phases_of(training, second_phase, examples), budget.note
    for example_set in [] if devices.worker or by_child else examples:
        if warning := text_never_read(phases, example_set):
            notify(warning)
    model = create_loop(training, phases, directory, note).run()
    if devices.worker:
        return
    if keras.backend.backend() == "jax":
        if importlib.util.find_spec("tensorflow") is None:
            tell(f"trained: {directory}; where TensorFlow is installed the same command exports the model")
        return
    if teacher:
        steps = devices.train_steps(model.teacher, keras.optimizers.SGD(), mlm.OBJECTIVE, training)
        sums = steps.evaluate(loaded[judged].eval_batches(training.eval_batch_size))
        _note_teacher(job, mlm.metrics_of(sums))
        model = model.student
    export_with_examples(model, objective, job, judged, tokenizer, record=_origin(job.init))
    copy_logs(directory, job.logs_dir)


def _note_teacher(job: PretrainJob, metrics: Mapping[str, float]) -> None:
    """Write the teacher's figures on the held-out examples beside the logs, for the gate."""
    scores = {"mlm_accuracy": metrics["mlm_accuracy"], "mlm_perplexity": math.exp(min(metrics["mlm_loss"], 700.0))}
    text = json_text({"folder": job.teacher, "scores": scores}, indent=2, sort_keys=True) + "\n"
    atomic_write_anywhere(os.path.join(job.logs_dir, TEACHER_FILE), text)


def _origin(init: str) -> dict[str, Any]:
    """The fields of `bert_config.json` that say what an initial model is and where its weights began, if it does."""
    if not init:
        return {}
    fields = json.loads((epath.Path(init) / CONFIG_FILE).read_text())
    return {name: fields[name] for name in (FAMILY_FIELD, ORIGIN_FIELD) if name in fields}


def _learned_rows(init: str) -> LearnedRows:
    """The rows that `training.freeze_initial` leaves to learn; InputError if there are none."""
    learned: LearnedRows = json.loads((epath.Path(init) / LEARNED_ROWS_FILE).read_text()) if init else []
    if all(rows == [] for rows in learned):
        raise InputError(
            "training.freeze_initial: nothing is left to learn, no word is new and no head is drawn; add words with "
            "vocabulary.extend, or set training.freeze_layers"
        )
    return learned


def export_with_examples(
    model: keras.Model,
    objective: Objective,
    job: PretrainJob,
    examples_dir: str,
    tokenizer: Tokenizer,
    untrained: Collection[Part] | None = None,
    record: Mapping[str, Any] | None = None,
) -> None:
    """Export a model with what its examples say: their layout, their unigram model and their specification.

    Args: as in `bert_keras.saved_model.pretrained.export_saved_model`; `examples_dir` has the examples.
    """
    from bert_keras.saved_model.pretrained import export_saved_model

    spec = ExampleSpec.load(examples_dir)
    unigram = unigram_model(spec, os.path.join(examples_dir, "Split-train"))
    export_saved_model(model, tokenizer, job.output_dir, spec.layout, objective, job.export, unigram, untrained, record)
    # The examples' spec belongs to the model.
    source, target = (os.path.join(folder, EXAMPLE_SPEC_FILE) for folder in (examples_dir, job.output_dir))
    epath.Path(source).copy(target, overwrite=True)  # there if a finished `bert-tfx train` is repeated


def by_length(folders: Sequence[str]) -> list[str]:
    """The examples of the phases in order: the second phase has the longer ones."""
    return sorted(folders, key=lambda folder: ExampleSpec.load(folder).max_seq_length)


def _example_set(examples_dir: str, model: BertConfig) -> ExampleSet:
    """Load the examples of one artifact; check that they fit the model."""
    spec = ExampleSpec.load(examples_dir)
    check_examples_fit(spec, model)
    masking = None
    if spec.masking.when == "dynamic":
        masking = DynamicMasking(spec.masking, MaskingVocabulary.of(load_tokenizer(examples_dir, spec)))
    return ExampleSet.load(examples_dir, masking)


def check_examples_fit(spec: ExampleSpec, model: BertConfig) -> None:
    """Refuse, with the names of the settings, mismatches that would otherwise fail inside a kernel."""
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
    """Refuse to train on fewer examples than a batch."""
    examples = phase.examples
    if examples.train_examples < phase.batch_size or not examples.eval_examples:
        raise InputError(
            f"{examples.train_examples} training and {examples.eval_examples} held-out examples of "
            f"{examples.max_seq_length} tokens are too few for a train_batch_size of {phase.batch_size}: give more "
            "text or a smaller batch, or hold out more with corpus.eval_fraction"
        )


def load_tokenizer(examples_dir: str, spec: ExampleSpec) -> Tokenizer:
    """Read the tokenizer of the examples, from the vocabulary beside them."""
    tokens, vocabulary = read_vocabulary(examples_dir)
    if vocabulary["vocabulary_sha256"] != spec.vocabulary_sha256:
        raise InputError(f"{examples_dir}: the vocabulary beside the examples is not the one that made them")
    return make_tokenizer(tokens, vocabulary, vocabulary["merges"])


if __name__ == "__main__":
    run_child(lambda fields: pretrain(PretrainJob.from_fields(fields)))
