"""What the models do on JAX's accelerators, with the platform pretended, and what training on them needs.

python tests/support/models/accelerator.py checks.json     for test_jax_backend.py, with KERAS_BACKEND=jax
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import traceback
from pathlib import Path
from unittest import mock

import keras
import numpy as np
from keras import ops

from bert_keras.models.backbone import BertBackbone
from bert_keras.models.pretraining_heads import BertForPreTraining
from tests.support.models import every_model

DROPPING = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
BFLOAT16 = 2.0**-8


@contextlib.contextmanager
def platform(name, **kernels):
    """Pretends devices of a platform; its kernels are called in the place of JAX's and Keras'."""
    import jax
    from keras.src.backend.jax import nn

    devices = [mock.Mock(platform=name)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(jax, "default_backend", lambda: name))
        stack.enter_context(mock.patch.object(jax, "devices", lambda *_: devices))
        if "splash" in kernels:
            stack.enter_context(mock.patch.object(nn, "wrap_flash_attention", kernels["splash"]))
            stack.enter_context(mock.patch.object(nn, "_can_use_flash_attention", lambda *_, **__: True))
        if "cudnn" in kernels:
            stack.enter_context(mock.patch.object(jax.nn, "dot_product_attention", kernels["cudnn"], create=True))
        yield


def splash(query, key, value, decoder_segment_ids, custom_mask=None, **_):
    """The TPU's kernel, without a mask, as Keras calls it: [B, A, T, D], scaled by D^-0.5."""
    assert custom_mask is None
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2)) / query.shape[-1] ** 0.5
    return ops.matmul(ops.softmax(scores), value)


def tokens(backbone, x, **flags):
    """`sequence_output` where there are tokens, in float32."""
    for name, value in flags.items():
        setattr(backbone, name, value)
    output = ops.convert_to_numpy(ops.cast(backbone(x, training=True)["sequence_output"], "float32"))
    return output * x["input_mask"][..., None]


def backbone_in_bfloat16(**changes):
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    backbone = BertBackbone(dataclasses.replace(every_model.TINY, initializer_range=0.2, **changes), seed=1)
    backbone.build()
    return backbone


def hidden_keys_on_a_tpu():
    backbone = backbone_in_bfloat16()
    for x in (every_model.features(), every_model.packed()):
        expected = tokens(backbone, x)
        with platform("tpu", splash=splash):
            np.testing.assert_allclose(tokens(backbone, x), expected, atol=8 * BFLOAT16)


def lengths_reach_the_kernel_of_a_gpu():
    """As the mask that they replace, in every layer; without the promise, packed, or with dropout there are none."""
    import jax

    passed, theirs = [], getattr(jax.nn, "dot_product_attention", None)

    def cudnn(query, key, value, bias=None, scale=None, key_value_seq_lengths=None, implementation=None, **_):
        passed.append(key_value_seq_lengths)
        query, key, value = (ops.cast(x, "float32") for x in (query, key, value))
        if theirs is not None:
            lengths = {"key_value_seq_lengths": key_value_seq_lengths, "implementation": "xla"}
            output = theirs(query, key, value, bias=bias, scale=scale, **lengths)
        else:
            scores = ops.einsum("btad,bsad->bats", query, key) * scale
            if key_value_seq_lengths is not None:
                is_hidden = np.arange(key.shape[1]) >= ops.cast(key_value_seq_lengths, "int32")[:, None, None, None]
                scores = ops.where(is_hidden, -1e30, scores)
            scores = scores if bias is None else scores + ops.cast(bias, "float32")
            output = ops.einsum("bats,bsad->btad", ops.softmax(scores), value)
        assert implementation == "cudnn" or key_value_seq_lengths is None
        return ops.cast(output, "bfloat16")

    backbone, x = backbone_in_bfloat16(), every_model.features(lengths=(12, 9, 4, 0))
    expected = tokens(backbone, x)
    with platform("gpu", cudnn=cudnn):
        actual = tokens(backbone, x, pads_on_the_right=True)
        assert np.array_equal([np.asarray(lengths) for lengths in passed], [[12, 9, 4, 1]] * 2), passed
        np.testing.assert_allclose(actual, expected, atol=8 * BFLOAT16)
        passed.clear()
        tokens(backbone, every_model.packed(), pads_on_the_right=True)
        tokens(backbone, x, pads_on_the_right=False)
        tokens(backbone_in_bfloat16(causal=True), x, pads_on_the_right=True)
        assert not [lengths for lengths in passed if lengths is not None]
        passed.clear()
        tokens(backbone_in_bfloat16(**DROPPING), x, pads_on_the_right=True)
        assert not passed


def losses_and_gradients(config, rematerializes):
    """Of a training step with dropout, compiled, with the random states after it and the number of its barriers."""
    import jax

    model, x = BertForPreTraining(config, seed=1), every_model.features()
    model.build()
    model.backbone.rematerializes = rematerializes
    states = [v.value for v in model.non_trainable_variables]

    def loss_of(trained):
        outputs, new = model.stateless_call(trained, states, x, training=True)
        return every_model.mlm_nsp_loss(outputs, x), new

    trained = [v.value for v in model.trainable_variables]
    step = jax.jit(jax.value_and_grad(loss_of, has_aux=True)).lower(trained)
    (loss, new), gradients = step.compile()(trained)
    return [loss, *new], gradients, step.as_text().count("optimization_barrier")


def rematerialized_layers_have_equal_gradients():
    """Of shared layers, and of a local and a global one; others: test_rematerialisation.py."""
    for config in (every_model.ALBERT, every_model.MODERN):
        keras.mixed_precision.set_dtype_policy("float32")
        config = dataclasses.replace(config, num_hidden_layers=2, **DROPPING)
        plain, again = (losses_and_gradients(config, flag) for flag in (False, True))
        for ours, theirs in zip(plain[0], again[0], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for ours, theirs in zip(plain[1], again[1], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
        # Between what a layer computes and what it computes again, lest XLA stores it after all; a CPU's may.
        assert plain[2] == 0 and again[2] >= config.num_hidden_layers


def gradients_of_biases_are_summed_in_float32():
    """Of 20,000 equal gradients: a sum in bfloat16 stops growing at 256 times one of them."""
    import jax

    from bert_keras.models.layers import add_bias

    layer, x = keras.layers.Layer(dtype="mixed_bfloat16"), ops.ones((20_000, 3), "bfloat16")
    added = jax.grad(lambda bias: ops.sum(ops.cast(add_bias(layer, x, bias), "float32")))
    gradient = jax.jit(added)(ops.zeros(3, "bfloat16"))
    np.testing.assert_allclose(ops.cast(gradient, "float32"), 20_000, rtol=BFLOAT16)


CHECKS = {
    check.__name__: check
    for check in (
        hidden_keys_on_a_tpu,
        lengths_reach_the_kernel_of_a_gpu,
        rematerialized_layers_have_equal_gradients,
        gradients_of_biases_are_summed_in_float32,
    )
}


def main(path):
    errors = {}
    for name, check in CHECKS.items():
        try:
            check()
            errors[name] = ""
        except Exception:
            errors[name] = traceback.format_exc()
    Path(path).write_text(json.dumps(errors))


if __name__ == "__main__":
    main(sys.argv[1])
