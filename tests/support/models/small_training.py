"""A training of twelve steps for tests: settings, loop, and log reader."""

import dataclasses
import functools
import json
import shutil

import keras

from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import mlm_nsp
from bert_keras.objectives.distillation import Taught, distilled
from bert_keras.objectives.settings import DistillationSettings
from bert_keras.training.config import SecondPhase, TrainingConfig
from bert_keras.training.loop import TrainingLoop
from bert_keras.training.mixed_examples import mixed
from bert_keras.training.optimizer import DecoupledAdam
from bert_keras.training.phases import ExampleSet, phases_of

MODEL = BertConfig(24, 32, 1, 2, 64, max_position_embeddings=16)
QUIET = dataclasses.replace(MODEL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
TEACHER = dataclasses.replace(MODEL, hidden_size=48, num_hidden_layers=2, initializer_range=0.3)
RUN = TrainingConfig(
    train_batch_size=16,
    num_train_steps=12,
    num_warmup_steps=3,
    learning_rate=5e-3,
    steps_per_execution=3,
    save_checkpoints_steps=6,
    eval_every_steps=6,
    eval_batch_size=8,
    eval_batches=2,
)


class Descent(keras.optimizers.SGD):
    """Plain gradient descent; `TrainSteps` passes gradients already summed over the replicas."""

    _all_reduce_sum_gradients = DecoupledAdam._all_reduce_sum_gradients


def loop(examples, directory, model=MODEL, learned_rows=None, taught=False, **change):
    config = dataclasses.replace(RUN, **change)
    read = mixed({examples.dir: ExampleSet.load(examples.dir)}, config)
    objective, create_student = mlm_nsp.OBJECTIVE, functools.partial(built, BertForPreTraining, model, seed=config.seed)
    create_model = create_student
    if taught:
        teacher = built(BertForPreTraining, TEACHER, seed=9)
        objective = distilled(objective, DistillationSettings(relations_weight=1.0))

        def create_model():
            return Taught(create_student(), teacher, heads=4)

    phases = phases_of(config, SecondPhase(), [read])
    return TrainingLoop(create_model, objective, config, phases, str(directory), learned_rows=learned_rows)


def built(model_class, *args, **kwargs):
    model = model_class(*args, **kwargs)
    model.build()
    return model


def resume_from(run, step, directory):
    """Copy the checkpoint of a run at a step to a new run's folder."""
    (directory / "checkpoints").mkdir(parents=True)
    for path in (run / "checkpoints").glob(f"ckpt-{step}.*"):
        shutil.copy(path, directory / "checkpoints")


def log(directory, kind="train"):
    return [e for e in map(json.loads, (directory / "log.jsonl").read_text().splitlines()) if e["kind"] == kind]


def losses(directory):
    steps = [e["step"] for e in log(directory)]
    assert len(set(steps)) == len(steps)
    return {e["step"]: e["loss"] for e in log(directory)}
