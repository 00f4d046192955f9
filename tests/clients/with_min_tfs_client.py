"""min-tfs-client, over gRPC. Of protobuf 3.20, only the implementation in Python reads its older messages."""

import os

os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"

import numpy as np
from min_tfs_client.requests import TensorServingClient
from min_tfs_client.tensors import tensor_proto_to_ndarray


def test_predict_with_texts():
    host, port = os.environ["GRPC"].split(":")
    texts = np.array(["a [MASK]", "[MASK] b"])
    response = TensorServingClient(host, int(port)).predict_request("bert", {"text": texts}, model_version=1)
    assert tensor_proto_to_ndarray(response.outputs["tokens"]).shape == (2, 1, 5)
    scores = tensor_proto_to_ndarray(response.outputs["scores"])
    assert scores.shape == (2, 1, 5) and (scores > 0).all() and (np.diff(scores) <= 0).all()
