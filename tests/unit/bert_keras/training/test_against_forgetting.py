"""What keeps a model that is trained on from forgetting: replayed examples, and frozen layers."""

import dataclasses

import keras
import numpy as np
import pytest

from bert_keras.data.example_format import ExampleSpec, Shard
from bert_keras.data.tfrecord_batches import Replay
from bert_keras.errors import InputError
from bert_keras.pretraining import _with_replay, text_never_read
from bert_keras.training.config import SecondPhase, TrainingConfig
from bert_keras.training.optimizer import OPTIMIZERS, create_optimizer
from bert_keras.training.phases import ExampleSet, phases_of

SPEC = ExampleSpec(128, 20, 1000, "", 500, 50)
GENERAL = [Shard("1", 0, 9, 0, "")]


def test_replayed_examples_do_not_count_as_read_text():
    """Of 1,200 examples read 360 are replayed, so 840 of a pass of 1,200."""
    examples = ExampleSet(SPEC, [Shard("0", 0, 1200, 0, "")], [], replay=Replay(GENERAL, 0.3))
    config = TrainingConfig(train_batch_size=100, num_train_steps=12, num_warmup_steps=0)
    found = text_never_read(phases_of(config, SecondPhase(0), [examples]), examples)
    assert found.startswith("840 examples of 128 tokens are read, and a pass over the documents has 1,200: 30% of")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"vocabulary_sha256": "other"}, "the replayed examples have another layout or vocabulary"),
        ({"max_seq_length": 64}, "the replayed examples have another layout or vocabulary"),
        ({"train_examples": 0}, "--replay: no examples could be made of this text"),
    ],
)
def test_replayed_examples_that_do_not_fit_are_refused(spec, message):
    replay = ExampleSet(dataclasses.replace(SPEC, replay=True, eval_examples=0, **spec), [], [])
    with pytest.raises(InputError, match=message):
        _with_replay(ExampleSet(SPEC, [], []), replay, 0.1)


def test_replayed_examples_that_fit_are_mixed_in():
    replay = ExampleSet(dataclasses.replace(SPEC, replay=True, eval_examples=0), GENERAL, [])
    mixed = _with_replay(ExampleSet(SPEC, [], []), replay, 0.1)
    assert (mixed.replay, mixed.spec) == (Replay(GENERAL, 0.1), SPEC)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_frozen_layers_keep_their_weights(optimizer):
    moved = {}
    for frozen in (0, 1, 2):
        layers = [keras.layers.Layer(name=name) for name in ("embeddings", "layer_0", "layer_1", "pooler")]
        variables = [layer.add_weight(name="kernel", shape=(2,), initializer="ones") for layer in layers]
        config = TrainingConfig(optimizer=optimizer, freeze_layers=frozen, num_warmup_steps=0, learning_rate=0.1)
        gradient = keras.ops.convert_to_tensor(np.array([0.3, -0.1], "float32"))
        create_optimizer(config, 2).apply([gradient] * 4, variables)
        moved[frozen] = [bool((np.asarray(v) != 1.0).all()) for v in variables]
    assert moved == {0: [True] * 4, 1: [False, False, True, True], 2: [False, False, False, True]}
