"""Triton's HTTP client, whose tensors are binary unless told otherwise."""

import os

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferenceServerException, InferInput, InferRequestedOutput


@pytest.fixture(scope="module")
def client():
    with InferenceServerClient(os.environ["REST"].removeprefix("http://")) as client:
        yield client


def given(name, *texts, **options):
    tensor = InferInput(name, [len(texts)], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode() for text in texts], object), **options)
    return tensor


@pytest.mark.parametrize("binary", [True, False])
def test_infer(client, binary):
    outputs = None if binary else [InferRequestedOutput("score", binary_data=False)]
    inputs = [given("text", "a b", "c", binary_data=binary), given("text_pair", "é", "d", binary_data=binary)]
    scores = client.infer("pairs", inputs, outputs=outputs).as_numpy("score")
    assert scores.shape == (2,) and scores.dtype == np.float32 and scores[0] != scores[1]


def test_another_signature(client):
    answer = client.infer("bert", [given("text", "a [MASK]")], "1", parameters={"signature_name": "fill_mask"})
    tokens = answer.as_numpy("tokens")
    assert tokens.shape == (1, 1, 5) and isinstance(tokens[0, 0, 0], bytes)


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("pairs", "1")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    inputs = client.get_model_metadata("pairs")["inputs"]
    assert [(tensor["name"], tensor["datatype"]) for tensor in inputs] == [("text", "BYTES"), ("text_pair", "BYTES")]


def test_an_error_is_the_server_s(client):
    with pytest.raises(InferenceServerException, match="no input 'txt'; expected: text"):
        client.infer("bert", [given("txt", "a")])
