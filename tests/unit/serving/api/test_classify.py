"""Classify and Regress, with TensorFlow Serving's codes and messages."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import tensorflow as tf
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest

from serving.api.classify import CLASSIFY, REGRESS
from serving.api.json_tensors import examples_input
from serving.middleware.settings import LimitSettings
from serving.protos import (
    ClassificationRequest,
    Example,
    Input,
    ModelSpec,
    PredictionServiceStub,
    RegressionRequest,
)
from serving.server import Server
from tests.support.serving.running import running

LABELS = ("short", "long\xe9")
PREDICT = "tensorflow/serving/predict"


def save(path: Path) -> None:
    """Signatures that share one input tensor, as estimators had. Scores count the letters of text and text_pair."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], name="examples")
        numbers = v1.placeholder(tf.string, [None], name="others")
        text = tf.io.FixedLenFeature([], tf.string)
        parsed = tf.io.parse_example(serialized, {"text": text, "text_pair": text})
        lengths = tf.cast(tf.strings.length(parsed["text"]), tf.float32)
        scores = tf.stack([lengths, tf.cast(tf.strings.length(parsed["text_pair"]), tf.float32)], 1)
        classes = tf.broadcast_to(tf.constant(LABELS), tf.shape(scores))
        both = scores + tf.cast(tf.strings.length(numbers), tf.float32)[:, tf.newaxis]
        latin = tf.fill(tf.shape(scores), tf.constant(b"\xff"))

        def signature(method: str, outputs: dict[str, tf.Tensor], inputs: dict[str, tf.Tensor] | None = None) -> Any:
            given = inputs or {"inputs": serialized}
            info = [
                {name: v1.saved_model.build_tensor_info(tensor) for name, tensor in tensors.items()}
                for tensors in (given, outputs)
            ]
            return v1.saved_model.build_signature_def(*info, method)

        signatures = {
            "serving_default": signature(REGRESS, {"outputs": lengths}),
            "classes_and_scores": signature(CLASSIFY, {"classes": classes, "scores": scores}),
            "scores": signature(CLASSIFY, {"scores": scores}),
            "classes": signature(CLASSIFY, {"classes": classes}),
            "not_text": signature(CLASSIFY, {"classes": latin}),
            "column": signature(REGRESS, {"outputs": lengths[:, tf.newaxis]}),
            "predict": signature(PREDICT, {"scores": scores}),
            "two_inputs": signature(CLASSIFY, {"scores": both}, {"inputs": serialized, "others": numbers}),
            "two_to_regress": signature(REGRESS, {"outputs": both}, {"inputs": serialized, "others": numbers}),
            "input_by_another_name": signature(CLASSIFY, {"scores": scores}, {"examples": serialized}),
            "three_outputs": signature(CLASSIFY, {"classes": classes, "scores": scores, "more": scores}),
            "other_outputs": signature(CLASSIFY, {"labels": classes}),
            "two_numbers": signature(REGRESS, {"outputs": lengths, "more": lengths}),
            "number_by_another_name": signature(REGRESS, {"number": lengths}),
            "flat": signature(CLASSIFY, {"scores": lengths}),
            "text_scores": signature(CLASSIFY, {"scores": classes}),
            "number_classes": signature(CLASSIFY, {"classes": scores}),
            "fewer": signature(CLASSIFY, {"scores": scores[1:]}),
            "uneven": signature(CLASSIFY, {"classes": classes[:, :1], "scores": scores}),
            "wide": signature(REGRESS, {"outputs": scores}),
            "fewer_numbers": signature(REGRESS, {"outputs": lengths[1:]}),
            "text_numbers": signature(REGRESS, {"outputs": parsed["text"]}),
        }  # fmt: skip
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("classified")
    save(base / "under-way")
    (base / "under-way").rename(base / "6")
    with running(base) as server:
        yield server


@pytest.fixture(scope="module")
def stub(served: Server) -> Iterator[PredictionServiceStub]:
    with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}", [("grpc.enable_http_proxy", 0)]) as channel:
        yield PredictionServiceStub(channel)


def example(**texts: str) -> Example:
    made = Example()
    for name, text in texts.items():
        made.features.feature[name].bytes_list.value.append(text.encode())
    return made


def listed(*examples: Example) -> Input:
    given = Input()
    given.example_list.examples.extend(examples)
    return given


def in_context(context: Example, *examples: Example) -> Input:
    given = Input()
    given.example_list_with_context.context.CopyFrom(context)
    given.example_list_with_context.examples.extend(examples)
    return given


TWO = listed(example(text="abc", text_pair="d"), example(text="", text_pair="ef"))


def classified(stub: PredictionServiceStub, signature: str, given: Input = TWO) -> Any:
    request = ClassificationRequest(model_spec=ModelSpec(name="bert", signature_name=signature), input=given)
    return stub.Classify(request, timeout=120)


def regressed(stub: PredictionServiceStub, signature: str, given: Input = TWO) -> Any:
    request = RegressionRequest(model_spec=ModelSpec(name="bert", signature_name=signature), input=given)
    return stub.Regress(request, timeout=120)


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code().name, caught.value.details()


def rows(result: Any) -> list[list[tuple[str, float]]]:
    return [[(one.label, one.score) for one in row.classes] for row in result.classifications]


def test_classify(stub: PredictionServiceStub) -> None:
    answer = classified(stub, "classes_and_scores")
    assert rows(answer.result) == [[("short", 3), (LABELS[1], 1)], [("short", 0), (LABELS[1], 2)]]
    spec = answer.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("bert", 6, "classes_and_scores")
    assert rows(classified(stub, "scores").result) == [[("", 3), ("", 1)], [("", 0), ("", 2)]]
    assert rows(classified(stub, "classes").result) == [[("short", 0), (LABELS[1], 0)]] * 2
    assert rows(classified(stub, "not_text").result) == [[("�", 0), ("�", 0)]] * 2


def test_regress(stub: PredictionServiceStub) -> None:
    for signature in ("", "column"):
        answer = regressed(stub, signature)
        assert [row.value for row in answer.result.regressions] == [3, 0]
        assert answer.model_spec.signature_name == (signature or "serving_default")


def test_context_is_merged_into_every_example_and_can_be_overridden(stub: PredictionServiceStub) -> None:
    given = in_context(example(text_pair="1234", text="x"), example(text="abc"), example(text="", text_pair="e"))
    assert [[score for _, score in row] for row in rows(classified(stub, "scores", given).result)] == [[3, 4], [0, 1]]


CLASSIFY_ERRORS = [
    ("none", "INVALID_ARGUMENT", "No signature was found with the name: none"),
    ("", "INVALID_ARGUMENT",
     f"Expected classification signature method_name to be {CLASSIFY}. Was: {REGRESS}"),
    ("predict", "INVALID_ARGUMENT",
     f"Expected classification signature method_name to be {CLASSIFY}. Was: {PREDICT}"),
    ("two_inputs", "INVALID_ARGUMENT", "Expected one input Tensor."),
    ("three_outputs", "INVALID_ARGUMENT", "Expected one or two output Tensors, found 3"),
    ("input_by_another_name", "FAILED_PRECONDITION", "No classification inputs found in SignatureDef: "),
    ("other_outputs", "FAILED_PRECONDITION", "Expected classification signature outputs to contain at least one of "
     '"classes" or "scores". Signature was: '),
    ("flat", "INVALID_ARGUMENT", "Expected Tensor shape: [batch_size num_classes] but got [2]"),
    ("text_scores", "INVALID_ARGUMENT", "Expected scores Tensor of DT_FLOAT. Got: DT_STRING"),
    ("number_classes", "INVALID_ARGUMENT", "Expected classes Tensor of DT_STRING. Got: DT_FLOAT"),
    ("fewer", "INVALID_ARGUMENT", "Expected scores output batch size of 2. Got: 1"),
    ("uneven", "INVALID_ARGUMENT", "Tensors class and score should match in dim_size(1). Got 1 vs. 2"),
]  # fmt: skip


REGRESS_ERRORS = [
    ("none", "INVALID_ARGUMENT", "No signature was found with the name: none"),
    ("scores", "INVALID_ARGUMENT", f"Expected regression signature method_name to be {REGRESS}. Was: {CLASSIFY}"),
    ("two_to_regress", "INVALID_ARGUMENT", "Expected one input Tensor."),
    ("two_numbers", "INVALID_ARGUMENT", "Expected one output Tensor."),
    ("number_by_another_name", "FAILED_PRECONDITION", "No regression outputs found in SignatureDef: "),
    ("wide", "INVALID_ARGUMENT",
     "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [2,2]"),
    ("fewer_numbers", "INVALID_ARGUMENT", "Input batch size did not match output batch size: 2 vs. 1"),
    ("text_numbers", "INVALID_ARGUMENT", "Expected output Tensor of DT_FLOAT.  Got: DT_STRING"),
]  # fmt: skip


@pytest.mark.parametrize(
    "ask, signature, code, message",
    [(classified, *row) for row in CLASSIFY_ERRORS] + [(regressed, *row) for row in REGRESS_ERRORS],
)
def test_errors_are_those_of_classifier_cc_and_regressor_cc(
    stub: PredictionServiceStub, ask: Callable[..., Any], signature: str, code: str, message: str
) -> None:
    found, details = refused(lambda: ask(stub, signature))
    assert (found, details[: len(message)]) == (code, message)
    assert code == "FAILED_PRECONDITION" or details == message


@pytest.mark.parametrize(
    "given", [Input(), listed(), in_context(example(text="a"))], ids=["nothing", "no examples", "a context alone"]
)
def test_no_examples(stub: PredictionServiceStub, given: Input) -> None:
    for call in (lambda: classified(stub, "scores", given), lambda: regressed(stub, "", given)):
        assert refused(call) == ("INVALID_ARGUMENT", "Input is empty.")


def test_without_a_model_spec(stub: PredictionServiceStub) -> None:
    for call in (
        lambda: stub.Classify(ClassificationRequest(input=TWO), timeout=120),
        lambda: stub.Regress(RegressionRequest(input=TWO), timeout=120),
    ):
        assert refused(call) == ("INVALID_ARGUMENT", "Missing ModelSpec")


def test_examples_without_a_feature_are_the_graphs_error(stub: PredictionServiceStub) -> None:
    code, details = refused(lambda: classified(stub, "scores", listed(example(text="a"))))
    assert code == "INVALID_ARGUMENT" and "text_pair" in details


def test_multi_inference_is_not_served(stub: PredictionServiceStub) -> None:
    assert refused(lambda: stub.MultiInference(MultiInferenceRequest(input=TWO), timeout=120))[0] == "UNIMPLEMENTED"


@pytest.fixture(scope="module")
def http(served: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{served.rest_port}", trust_env=False, timeout=120) as client:
        yield client


def test_rest(http: httpx.Client) -> None:
    body = {"examples": [{"text": "abc"}, {"text": [{"b64": "YQ=="}]}], "context": {"text_pair": "d", "n": [1, 2]}}
    answer = http.post("/v1/models/bert:classify", json=body | {"signature_name": "classes_and_scores"})
    assert answer.json() == {"results": [[["short", 3.0], [LABELS[1], 1.0]], [["short", 1.0], [LABELS[1], 1.0]]]}
    assert answer.headers["content-type"] == "application/json"
    assert http.post("/v1/models/bert/versions/6:regress", json=body).json() == {"results": [3.0, 1.0]}
    assert http.post(f"/v1/models/bert/versions/{10**30}:regress", json=body).status_code == 404


@pytest.mark.parametrize(
    "body, message",
    [
        ("{", "JSON Parse error"),
        ("[]", "Is not object"),
        ("{}", "When method is classify, key 'examples' is expected and was not found"),
        ('{"examples": {}}', "Expecting 'examples' value to be an list/array"),
        ('{"examples": []}', "'examples' value is an empty array"),
        ('{"examples": ["a"]}', "Example must be JSON object but got JSON str"),
        ('{"examples": [{}], "context": 1}', "Example must be JSON object but got JSON int"),
        ('{"examples": [{"text": null}]}', "Feature: text has element with unexpected JSON type"),
        ('{"examples": [{"text": [["a"]]}]}', "Feature: text has element with unexpected JSON type"),
        ('{"examples": [{"text": {"a": 1}}]}', "Feature: text has element with unexpected JSON type"),
        ('{"examples": [{"text": ["a", 1]}]}', "Unexpected element type in feature: text expecting type: bytes"),
        ('{"examples": [{"text": [1.5, true]}]}', "Unexpected element type in feature: text expecting type: float"),
        ('{"examples": [{"text": 9223372036854775808}]}', "Only int64 is supported"),
        ('{"examples": [{"text": 1e300}]}', "without loss of precision"),
        ('{"examples": [{"text": {"b64": "!"}}]}', "base64"),
        ('{"examples": [{"text": {"b64": "é"}}]}', "base64"),
        ('{"examples": [{"\\ud800": "a"}]}', "surrogate"),
        ('{"examples": [{"text": "a"}], "signature_name": 3}', "must be a string"),
        ('{"examples": [{"text": "a"}], "signature_name": "\\ud800"}', "surrogate"),
        ('{"examples": [{"text": "a"}], "signature_name": "none"}', "No signature was found with the name: none"),
        ('{"examples": [{"text": "a"}]}', "text_pair"),
        ('{"examples": [{"text": 1, "text_pair": "a"}]}', "text"),
    ],
)
def test_malformed_rest_bodies(http: httpx.Client, body: str, message: str) -> None:
    answer = http.post("/v1/models/bert:regress", content=body.encode())
    assert (answer.status_code, message in answer.json()["error"]) == (400, True), answer.text


def test_numbers_of_examples_keep_their_kind() -> None:
    given = examples_input({"examples": [{"a": [1, True], "b": [0.5], "c": 2.0, "d": []}]}, LimitSettings())
    features = given.example_list.examples[0].features.feature
    assert list(features["a"].int64_list.value) == [1, 1]
    assert list(features["b"].float_list.value) == [0.5] and list(features["c"].float_list.value) == [2.0]
    assert "d" in features and features["d"].WhichOneof("kind") is None
