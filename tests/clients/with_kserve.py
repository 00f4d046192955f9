"""kserve's REST client, of V1 (TensorFlow Serving's own) and V2."""

import asyncio
import os

import numpy as np
import pytest
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig

REST = os.environ["REST"]


def asked(protocol, call):
    async def run():
        return await call(InferenceRESTClient(RESTConfig(protocol=protocol)))

    return asyncio.run(run())


def test_v1_predict():
    answer = asked("v1", lambda client: client.infer(REST, {"instances": ["a [MASK]"]}, model_name="bert"))
    assert np.shape(answer["predictions"][0]["scores"]) == (1, 5)


@pytest.mark.parametrize("binary", [False, True])
def test_v2_infer(binary):
    texts = InferInput("text", [2], "BYTES")
    texts.set_data_from_numpy(np.array([b"a b", "é".encode()], object), binary_data=binary)
    request = InferRequest("bert", [texts], parameters={"signature_name": "embed"})
    answer = asked("v2", lambda client: client.infer(REST, request, model_name="bert"))
    vectors = {output.name: output.as_numpy() for output in answer.outputs}["embedding"]
    assert vectors.shape == (2, 32) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_v2_health():
    assert asked("v2", lambda client: client.is_server_live(REST))
    assert asked("v2", lambda client: client.is_server_ready(REST))
    assert asked("v2", lambda client: client.is_model_ready(REST, "bert"))
