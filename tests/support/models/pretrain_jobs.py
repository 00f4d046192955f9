"""Small pre-trainings by `bert_keras.pretraining.pretrain`: jobs, their examples, and what replaces costly parts."""

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
import tensorflow as tf

from bert_keras import pretraining
from bert_keras.jobs import PretrainJob
from bert_keras.models.config import BertConfig
from bert_keras.training.backends.on_tensorflow.steps import TensorFlowSteps
from bert_keras.training.config import TrainingConfig
from tests.support.examples.shard_figures import note_shards

TRAINING = TrainingConfig(
    train_batch_size=8,
    num_train_steps=4,
    num_warmup_steps=1,
    steps_per_execution=2,
    eval_batch_size=4,
    eval_batches=1,
)
# One step that changes nothing.
STANDING = dataclasses.replace(
    TRAINING, num_train_steps=1, num_warmup_steps=0, learning_rate=1e-9, steps_per_execution=1
)
# Of the vocabulary of tests/unit/bert_keras/conftest.py.
MODEL = BertConfig(24, 16, 1, 1, 32, max_position_embeddings=16)


def pretrain_job(folder, tmp_path, **fields):
    """Four steps of a model of one layer, on examples of at most 16 tokens and the vocabulary of `conftest`."""
    job = PretrainJob(
        examples=(str(folder),),
        model=MODEL,
        training=TRAINING,
        output_dir=str(tmp_path / "model"),
        logs_dir=str(tmp_path / "model_run"),
        training_root=str(tmp_path / "training"),
        code="of this test",
    )
    return dataclasses.replace(job, **fields)


def not_exported(model, tokenizer, directory, *_):
    """Skip an export that nobody reads: it takes longer than the training."""
    Path(directory).mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def stopped_at(step):
    """A training on TensorFlow stops here, without a checkpoint, where it has done this number of steps."""
    calls = TensorFlowSteps.__call__

    def call(steps, *args, **kwargs):
        if steps.step >= step:
            raise KeyboardInterrupt
        return calls(steps, *args, **kwargs)

    with mock.patch.object(TensorFlowSteps, "__call__", call), pytest.raises(KeyboardInterrupt):
        yield


class Named(Exception):
    """The folder of a pre-training is known."""


def pretraining_folder(monkeypatch, job):
    """The folder of a job's checkpoints, which is named for all that makes its weights; nothing is trained."""

    def stop(folder, settings):
        raise Named(folder)

    monkeypatch.setattr(pretraining, "tell_what_changed", stop)
    monkeypatch.setattr(pretraining, "train_in_child", lambda *_: None)
    with pytest.raises(Named) as named:
        pretraining.pretrain(job)
    return str(named.value)


def change_examples(root, change, splits="Split-*"):
    """Write the records of an examples artifact again, each as `change` leaves its features."""
    for path in root.glob(f"{splits}/*"):
        records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                stored = tf.train.Example.FromString(record)
                change(stored.features.feature)
                writer.write(stored.SerializeToString())
    note_shards(root)


def change_spec(root, **fields):
    spec = json.loads((root / "example_spec.json").read_text())
    (root / "example_spec.json").write_text(json.dumps(spec | fields))


def made_for(objective, examples, root):
    """The examples as if they had been made for another objective: what it does not have is taken out."""
    shutil.copytree(examples.dir, root)
    gone = ("next_sentence", "masked_lm") if objective == "left_to_right" else ("next_sentence",)

    def take_out(features):
        for name in [name for name in features if name.startswith(gone)]:
            del features[name]

    change_examples(root, take_out)
    change_spec(root, objective=objective)
