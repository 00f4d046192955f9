"""A trained BERT equals recorded outputs of `transformers`; tests/parity compares live, in more detail."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.models.model_folders import read_huggingface
from tests.support.models.trained_bert import DIRECTORY, features

GOLDEN = Path(__file__).parent / "golden_trained/outputs.npz"  # made by make.py beside it
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def golden():
    return np.load(GOLDEN)


@pytest.fixture(scope="module")
def read():
    return read_huggingface(DIRECTORY)


@pytest.fixture(scope="module")
def inputs(read, golden):
    return features(read.tokenizer, golden["texts"].tolist(), longest=64)


def test_token_ids(inputs, golden):
    np.testing.assert_array_equal(inputs["input_ids"], golden["input_ids"])


def test_every_layer_and_the_pooled_output(read, inputs, golden):
    outputs, positions = read.model(inputs), golden["positions"]
    for number, (layer, theirs) in enumerate(zip(outputs["encoder_outputs"], golden["layers"], strict=True)):
        ours = np.take_along_axis(np.asarray(layer), positions[:, :, None], axis=1)[:, :, ::8]
        assert np.abs(theirs).max() > 1
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE, err_msg=f"layer {number}")
    pooled = np.asarray(outputs["pooled_output"])[:, ::8]
    np.testing.assert_allclose(pooled, golden["pooled_output"], rtol=0, atol=TOLERANCE)
