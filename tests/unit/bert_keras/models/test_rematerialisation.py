"""Layers that are computed again in the backward pass, on TensorFlow; on JAX: accelerator.py."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.models.layers import EncoderLayer
from bert_keras.models.pretraining_heads import BertForPreTraining
from tests.support.models import every_model

X = every_model.features()


def step(config, rematerializes, mode):
    """Loss, gradients and random states after one step, with dropout."""
    model = BertForPreTraining(dataclasses.replace(config, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2))
    model.build()
    model.backbone.rematerializes = rematerializes

    def run():
        with tf.GradientTape() as tape:
            loss = every_model.mlm_nsp_loss(model(X, training=True), X)
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        return [loss, *map(tf.convert_to_tensor, gradients)]

    run = run if mode == "eager" else tf.function(run, jit_compile=mode == "xla")
    return [x.numpy() for x in run()] + [v.numpy() for v in model.non_trainable_variables]


# A graph, as in training, of shared layers and of layers with keys from outside; the others are parts of these.
@pytest.mark.parametrize(
    ("name", "mode"),
    [("TINY", "eager"), ("MPNET", "eager"), ("TINY", "xla"), ("ALBERT", "graph"), ("DEBERTA", "graph")],
)
def test_gradients_are_equal_and_masks_go_on(name, mode, monkeypatch):
    """Those of an eager step that computes each layer once."""
    calls, call = [], EncoderLayer.call

    @functools.wraps(call)  # Keras reads the names of the arguments
    def counted(*args, **kwargs):
        calls.append(1)
        return call(*args, **kwargs)

    monkeypatch.setattr(EncoderLayer, "call", counted)
    config = getattr(every_model, name)
    plain = step(config, False, "eager")
    once = len(calls)
    for ours, theirs in zip(step(config, True, mode), plain, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    # Again in the backward pass.
    assert once == config.num_hidden_layers and len(calls) == 3 * once
