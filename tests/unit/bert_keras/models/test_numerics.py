"""Every model in bfloat16, compiled by XLA, with padding, and for minimal inputs."""

import functools

import keras
import numpy as np
import pytest

from tests.support.models import every_model
from tests.support.models.every_model import CASES, T, outputs_and_gradients, random_model

every_case = pytest.mark.parametrize("name", CASES)


@functools.cache
def model_of(name, policy):
    keras.mixed_precision.set_dtype_policy(policy)
    try:
        return random_model(CASES[name])
    finally:
        keras.mixed_precision.set_dtype_policy("float32")


@every_case
def test_bfloat16_is_near_float32(name, monkeypatch):
    """At tokens, relative to each output's norm: bfloat16 has 8 bits, so that every product is off by up to 0.4 %."""
    case = CASES[name]
    x = case.features()
    # What the generator puts is a step function: both must put the same.
    monkeypatch.setattr(every_model, "best_guess", lambda logits, seed: np.full(logits.shape[:-1], 7, "int32"))
    mixed = model_of(name, "mixed_bfloat16")
    assert all(variable.dtype == "float32" for variable in mixed.trainable_variables)
    ours, exact = (outputs_and_gradients(case, model, x) for model in (mixed, model_of(name, "float32")))
    for key, value in exact.items():
        assert np.isfinite(ours[key]).all(), key
        if not key.startswith("gradient of"):
            real = x["input_mask"] == 1 if value.shape[:2] == x["input_mask"].shape else ...
            difference = np.linalg.norm((ours[key] - value)[real]) / np.linalg.norm(value[real])
            # 0.033 is the largest seen: "modern, packed", TensorFlow 2.21 without AVX-512.
            assert difference < (0.01 if key == "loss" else 0.04), key
    names = [key for key in exact if key.startswith("gradient of")]
    gradients = [np.concatenate([found[name].ravel() for name in names]) for found in (ours, exact)]
    cosine = gradients[0] @ gradients[1] / np.linalg.norm(gradients[0]) / np.linalg.norm(gradients[1])
    print(f"loss {ours['loss']:.4f}, exactly {exact['loss']:.4f}; cosine of the gradients {cosine:.5f}")
    assert cosine > 0.999


@every_case
def test_the_loss_is_computed_in_float32(name):
    """Logits are bfloat16; the loss is float32, and its softmax is not rounded to 8 bits."""
    case = CASES[name]
    x = case.features()
    outputs = model_of(name, "mixed_bfloat16")(x)
    logits = {key: value for key, value in every_model.named(outputs).items() if "logits" in key}
    # Vectors of texts are float32 before they are compared: their cosines are divided by a small temperature.
    expected = "float32" if name == "similarity" else "bfloat16"
    assert logits and all(keras.backend.standardize_dtype(value.dtype) == expected for value in logits.values())
    loss = case.loss(outputs, x)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    in_float32 = {k: keras.ops.cast(v, "float32") if k in logits else v for k, v in every_model.named(outputs).items()}
    again = case.loss(in_float32 if isinstance(outputs, dict) else in_float32["logits"], x)
    np.testing.assert_array_equal(loss, again)


@pytest.mark.parametrize("name", ["bert, packed", "roberta", "electra"])
def test_xla_agrees(name):
    """To 1e-5 of the largest number of each tensor; the biases of keys have a gradient of 0."""
    case = CASES[name]
    model = model_of(name, "float32")
    plain, compiled = (outputs_and_gradients(case, model, case.features(), jit_compile=jit) for jit in (False, True))
    assert plain.keys() == compiled.keys()
    for key, value in plain.items():
        scale = np.abs(plain[key.replace("key/bias", "key/kernel")]).max()
        np.testing.assert_allclose(compiled[key], value, rtol=0, atol=1e-5 * max(scale, 1e-3), err_msg=key)


@every_case
def test_padding_changes_no_output_of_a_token(name, monkeypatch):
    """Whatever the padding holds; a backward LSTM starts at the last token."""
    monkeypatch.setattr("bert_keras.models.electra.sample", every_model.best_guess)
    case, model = CASES[name], model_of(name, "float32")
    short = case.features([(5, 3), (4, 0), (2, 2)] if "packed" in name else (8, 5, 3), 8)
    is_token = short["input_mask"] == 1
    longer = {key: values for key, values in short.items() if values.shape != is_token.shape}
    for key in short.keys() - longer.keys():
        widths = [(0, 0)] * (is_token.ndim - 1) + [(0, T - 8)]
        longer[key] = np.pad(short[key], widths, constant_values=7 if key == "input_ids" else 0)
    padded = every_model.named(model(longer))
    for key, value in every_model.named(model(short)).items():
        of_tokens = value.shape[: is_token.ndim] == is_token.shape
        ours, theirs = (np.asarray(x)[:, :8][is_token] if of_tokens else np.asarray(x) for x in (padded[key], value))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max(), err_msg=key)


# One row of one token; padding alone. Lengths of sequences, and of the rows.
EDGE_CASES = [((1,), 1), ((0, 0), T)]


@every_case
def test_edge_cases_are_finite(name):
    """Outputs, the loss and its gradients, in bfloat16, whose range is float32's."""
    case = CASES[name]
    for lengths, length in EDGE_CASES:
        x = case.features([(n, 0) for n in lengths] if "packed" in name else lengths, length)
        for key, value in outputs_and_gradients(case, model_of(name, "mixed_bfloat16"), x).items():
            assert np.isfinite(value).all(), (key, lengths, length)
