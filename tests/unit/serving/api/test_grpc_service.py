"""The gRPC API, called with tensorflow-serving-api's own stubs, like any TensorFlow Serving client."""

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from serving.server import Server
from tests.support.serving.running import predict_request


@pytest.fixture(scope="module")
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield channel


@pytest.fixture(scope="module")
def stub(channel: grpc.Channel) -> prediction_service_pb2_grpc.PredictionServiceStub:
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def error_of(call: Any, request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call(request, timeout=120)
    return raised.value.code(), raised.value.details()


def test_predict_answers_as_tensorflow_serving_does(stub: Any) -> None:
    response = stub.Predict(predict_request("", text=["a [MASK] b [MASK]", "[MASK]"]), timeout=120)
    spec = response.model_spec
    assert (spec.name, spec.signature_name, spec.version.value) == ("bert", "serving_default", 1)
    assert tf.make_ndarray(response.outputs["tokens"]).tolist() == [
        [[b"0a", b"0b"], [b"1a", b"1b"]],
        [[b"0a", b"0b"], [b"", b""]],
    ]
    # In the typed fields, which clients index, not in tensor_content.
    assert list(response.outputs["scores"].float_val) == pytest.approx([0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0, 0])


def test_output_filter(stub: Any) -> None:
    request = predict_request("numbers", real=[[1.0, 2.0]], whole=np.array([4], np.int32))
    request.output_filter.extend(["whole", "all"])
    response = stub.Predict(request, timeout=120)
    assert set(response.outputs) == {"whole", "all"}
    assert tf.make_ndarray(response.outputs["all"]).tolist() == 3.0
    request.output_filter.append("nothing")
    code, details = error_of(stub.Predict, request)
    assert code is grpc.StatusCode.INVALID_ARGUMENT and "{all,real,whole}" in details
    request.output_filter[2] = "all"
    assert "duplicate" in error_of(stub.Predict, request)[1]


def test_an_input_with_a_default_may_be_left_out(stub: Any) -> None:
    alone = stub.Predict(predict_request("encode", text=["abc"]), timeout=120)
    paired = stub.Predict(predict_request("encode", text=["abc"], text_pair=["de"]), timeout=120)
    assert list(alone.outputs["pooled_output"].float_val) == [3, 3, 3]
    assert list(paired.outputs["pooled_output"].float_val) == [5, 5, 5]
    # One row of such an input is repeated, as the default is.
    repeated = stub.Predict(predict_request("encode", text=["abc", "a"], text_pair=["de"]), timeout=120)
    assert list(repeated.outputs["pooled_output"].float_val) == [5, 5, 5, 3, 3, 3]


def test_bytes_that_are_not_text_and_long_text_pass(stub: Any) -> None:
    odd = [b"\xff\xfe\x00", b"", b"a\x00", b"x" * 1_000_000]
    response = stub.Predict(predict_request("length", text=odd), timeout=120)
    assert list(response.outputs["length"].int_val) == [3, 0, 2, 1_000_000]
    echoed = stub.Predict(predict_request("echo", text=odd[:3]), timeout=120)
    assert list(echoed.outputs["text"].string_val) == odd[:3]


@pytest.mark.parametrize(
    "request_, code, message",
    [
        (
            predict_request("", "other", text=["a"]),
            "NOT_FOUND",
            "Servable not found for request: Latest(other)",
        ),
        (predict_request("fil_mask", text=["a"]), "INVALID_ARGUMENT", "encode, encode_pair, fill_mask, length"),
        (
            predict_request("length", texts=["a"]),
            "INVALID_ARGUMENT",
            "takes text: DT_STRING[?]; given: texts",
        ),
        (predict_request("length"), "INVALID_ARGUMENT", "given: nothing"),
        (predict_request("length", text=[1.0]), "INVALID_ARGUMENT", "DT_STRING[?]; given: DT_FLOAT[1]"),
        (predict_request("length", text=[["a"]]), "INVALID_ARGUMENT", "DT_STRING[?]; given: DT_STRING[1, 1]"),
        (predict_request("length", text="a"), "INVALID_ARGUMENT", "DT_STRING[?]; given: DT_STRING[]"),
        (
            predict_request("encode", text=["a", "b", "c"], text_pair=["d", "e"]),
            "INVALID_ARGUMENT",
            'signature "encode": all inputs must have the same number of rows; given: text 3, text_pair 2',
        ),
        (predict_request("", text=["[MASK]", "none"]), "INVALID_ARGUMENT", "no [MASK] in text 1"),
        (predict_request("length", text=[1 + 1j]), "INVALID_ARGUMENT", "DT_COMPLEX"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_requests_report_the_expected_value(stub: Any, request_: Any, code: str, message: str) -> None:
    got, details = error_of(stub.Predict, request_)
    assert (got.name, message in details) == (code, True), details


def test_metadata(stub: Any) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "bert"
    response = stub.GetModelMetadata(request, timeout=120)
    assert (response.model_spec.name, response.model_spec.version.value) == ("bert", 1)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    text = signatures.signature_def["fill_mask"].inputs["text"]
    assert (text.dtype, [dim.size for dim in text.tensor_shape.dim]) == (tf.string.as_datatype_enum, [-1])
    assert set(signatures.signature_def["fill_mask"].outputs) == {"tokens", "scores"}
    request.metadata_field[0] = "weights"
    assert error_of(stub.GetModelMetadata, request)[0] is grpc.StatusCode.INVALID_ARGUMENT
    request.ClearField("metadata_field")
    assert error_of(stub.GetModelMetadata, request)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_status(channel: grpc.Channel) -> None:
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    assert error_of(stub.GetModelStatus, request)[0] is grpc.StatusCode.INVALID_ARGUMENT
    request.model_spec.name = "bert"
    (status,) = stub.GetModelStatus(request, timeout=120).model_version_status
    assert (status.version, status.state, status.status.error_code) == (
        1,
        get_model_status_pb2.ModelVersionStatus.AVAILABLE,
        0,
    )
    request.model_spec.version.value = 2
    assert error_of(stub.GetModelStatus, request)[0] is grpc.StatusCode.NOT_FOUND
    request.model_spec.name = "../bert"
    assert error_of(stub.GetModelStatus, request)[0] is grpc.StatusCode.NOT_FOUND
