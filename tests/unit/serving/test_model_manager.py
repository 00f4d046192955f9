"""Several models, labels, and reloads by RPC and by file, in TensorFlow Serving's words."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.errors import ServingError
from serving.model_config import ModelConfig
from serving.model_manager import ModelManager, Target
from serving.server import Server

Push = Callable[[Path, int, int], Path]
NOT_AVAILABLE = "Request to assign label to version {} of model a, which is not currently available for inference"


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory, push: Push) -> Path:
    """Model `a` has versions 1 and 2, model `b` version 3, `c` one that does not load."""
    folder = tmp_path_factory.mktemp("models")
    for name in "abc":
        (folder / name).mkdir()
    push(folder / "a", 1, 1)
    push(folder / "a", 2, 2)
    push(folder / "b", 3, 3)
    (folder / "c" / "1").mkdir()
    (folder / "c" / "1" / "saved_model.pb").write_bytes(b"no model")
    return folder


def written(bases: Path, name: str, rest: str = "") -> str:
    return f'config {{ name: "{name}" base_path: "{bases / name}" model_platform: "tensorflow" {rest} }}'


def listed(*configs: str) -> str:
    return f"model_config_list {{ {' '.join(configs)} }}"


LATEST_TWO = "model_version_policy { latest { num_versions: 2 } }"


def label(name: str, version: int) -> str:
    return f'version_labels {{ key: "{name}" value: {version} }}'


@pytest.fixture
def file(tmp_path: Path, bases: Path) -> Path:
    file = tmp_path / "models.config"
    file.write_text(listed(written(bases, "a", f"{LATEST_TWO} {label('stable', 1)}"), written(bases, "b")))
    return file


class Api:
    """What the tests ask a server, over gRPC and REST."""

    def __init__(self, server: Server, channel: grpc.Channel):
        self.server = server
        self._models = model_service_pb2_grpc.ModelServiceStub(channel)
        self._predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict

    def reload(self, config: str) -> None:
        request = model_management_pb2.ReloadConfigRequest()
        if config:
            text_format.Parse(config, request.config)
        assert self._models.HandleReloadConfigRequest(request, timeout=60).status.error_code == 0

    def refused(self, call: Callable[..., Any], *arguments: Any) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as raised:
            call(*arguments)
        return raised.value.code().name, raised.value.details()

    def number(self, **spec: Any) -> int:
        """Which toy answers; it must be the version that the answer names."""
        version = spec.pop("version", None)
        request = predict_pb2.PredictRequest(model_spec=spec)
        request.model_spec.signature_name = "company"
        if version is not None:
            request.model_spec.version.value = version
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a"]))
        response = self._predict(request, timeout=60)
        (number,) = response.outputs["number"].int64_val
        assert response.model_spec.version.value == number
        return number

    def rest(self, path: str) -> httpx.Response:
        return httpx.post(
            f"http://127.0.0.1:{self.server.rest_port}/v1/models/{path}:predict",
            json={"instances": ["a"], "signature_name": "company"},
            trust_env=False,
            timeout=60,
        )

    def status(self, **spec: Any) -> list[tuple[int, str]]:
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
        found = self._models.GetModelStatus(request, timeout=60).model_version_status
        name = get_model_status_pb2.ModelVersionStatus.State.Name
        return [(one.version, name(one.state)) for one in found]


@pytest.fixture
def api(file: Path) -> Iterator[Api]:
    with (
        Server(model_config_file=file, model_config_poll_seconds=0.05, grpc_port=0, rest_port=0) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        assert server.wait_until_available(60)
        # The highest version serves first.
        deadline = time.monotonic() + 60
        while server.store.versions != [1, 2] and time.monotonic() < deadline:
            time.sleep(0.02)
        yield Api(server, channel)


def test_models_versions_and_labels_over_both_ports(api: Api) -> None:
    assert [api.number(name="a"), api.number(name="b")] == [2, 3]
    assert [api.number(name="a", version=1), api.number(name="a", version_label="stable")] == [1, 1]
    for path, version in {"a": 2, "a/versions/1": 1, "a/labels/stable": 1, "b": 3}.items():
        answer = api.rest(path)
        assert answer.json()["predictions"][0]["number"] == version, answer.text
        assert answer.headers["X-Model-Version"] == str(version)
    unknown = "INVALID_ARGUMENT", "Unrecognized servable version label: canary"
    assert api.refused(lambda: api.number(name="a", version_label="canary")) == unknown
    assert api.rest("a/labels/canary").json() == {"error": unknown[1]}
    assert api.refused(lambda: api.number(name="b", version_label="stable"))[0] == "INVALID_ARGUMENT"
    assert api.status(name="a") == [(1, "AVAILABLE"), (2, "AVAILABLE")]
    assert api.status(name="a", version_label="stable") == [(1, "AVAILABLE")]
    assert api.refused(lambda: api.number(name="")) == ("INVALID_ARGUMENT", "ModelSpec has no name specified.")
    served = "served: a version 1, a version 2, b version 3"
    for name in ("../a", "a/1", "/etc", "..", "c"):
        assert api.refused(lambda: api.number(name=name)) == (  # noqa: B023
            "NOT_FOUND",
            f"Servable not found for request: Latest({name}); {served}",
        )
    assert [api.rest("..%2Fa").status_code, api.rest("..").status_code, api.rest("c").status_code] == [400, 404, 404]


def test_a_canary_takes_two_reloads_and_leaves_the_rest_alone(api: Api, bases: Path) -> None:
    kept = api.server.models.get(Target("b"))
    canary = listed(written(bases, "a", f"{LATEST_TWO} {label('stable', 1)} {label('canary', 2)}"), written(bases, "b"))
    api.reload(listed(written(bases, "a", label("stable", 2)), written(bases, "b")))
    assert api.status(name="a")[1:] == [(2, "AVAILABLE")] and api.number(name="a", version_label="stable") == 2
    # Version 1 has gone: a label cannot go back to it before it is loaded again.
    assert api.refused(api.reload, canary) == ("FAILED_PRECONDITION", NOT_AVAILABLE.format(1))
    assert api.number(name="a", version_label="stable") == 2
    api.reload(listed(written(bases, "a", LATEST_TWO), written(bases, "b")))
    api.reload(canary)
    assert [api.number(name="a", version_label=name) for name in ("stable", "canary")] == [1, 2]
    assert api.server.models.get(Target("b")) is kept


def test_models_come_and_go(api: Api, bases: Path) -> None:
    api.reload(listed(written(bases, "b")))
    assert api.refused(lambda: api.number(name="a"))[0] == "NOT_FOUND" and api.number(name="b") == 3
    assert api.refused(lambda: api.status(name="a")) == ("NOT_FOUND", "Could not find any versions of model a")
    code, details = api.refused(api.reload, listed(written(bases, "a"), written(bases, "b"), written(bases, "c")))
    assert code == "UNKNOWN" and details.startswith("1 model(s) did not become available: {c due to error: ")
    assert [api.number(name="a"), api.number(name="b")] == [2, 3]
    # The same name elsewhere: loaded there before it goes here, and not at all if nothing there loads.
    moved = written(bases, "b").replace('name: "b"', 'name: "a"')
    api.reload(listed(moved))
    assert api.number(name="a") == 3
    api.reload(listed(moved.replace(str(bases / "b"), str(bases / "nowhere"))))
    assert api.number(name="a") == 3


def test_a_reload_that_is_wrong_changes_nothing(api: Api, bases: Path) -> None:
    for config, said in [
        (listed(written(bases, "b"), written(bases, "b")), "Illegal to list model b multiple times"),
        (listed(written(bases, "b").replace(str(bases), "models")), "to have an absolute path or URI"),
        ("custom_model_config {}", "Only ModelConfigList is currently supported"),
        (listed(written(bases, "a", label("x", 9)), written(bases, "b")), NOT_AVAILABLE.format(9)),
    ]:
        assert said in api.refused(api.reload, config)[1]
        assert [api.number(name="a", version_label="stable"), api.number(name="b")] == [1, 3]


def test_the_file_is_read_again_when_it_changes_and_when_asked(
    api: Api, file: Path, bases: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        file.write_text("model_config_list { confi")
        assert str(file) in api.refused(api.reload, "")[1]
        time.sleep(0.3)
    assert len(caplog.messages) == 1 and "the models stay as they are" in caplog.messages[0]
    assert api.number(name="a") == 2
    file.write_text(listed(written(bases, "b")))
    deadline = time.monotonic() + 30
    while list(api.server.models.stores) != ["b"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("allowed", [False, True])
def test_labels_of_versions_that_are_yet_to_load(bases: Path, allowed: bool) -> None:
    """The first configuration may have them; later it takes the option, and no label moves to such a version."""
    models = ModelManager(
        [ModelConfig("a", bases / "a", labels={"stable": 2})], allow_version_labels_for_unavailable_models=allowed
    )
    with pytest.raises(ServingError) as raised:
        models.get(Target("a", label="stable"))
    assert raised.value.code is grpc.StatusCode.UNAVAILABLE  # it has not looked yet
    models.reload([ModelConfig("a", bases / "a", labels={"stable": 2})]) if allowed else models.stores["a"].poll()
    assert models.get(Target("a", label="stable")).version == 2
    new, moved = {"stable": 2, "next": 7}, {"stable": 7}
    if allowed:
        models.reload([ModelConfig("a", bases / "a", labels=new)])
        assert models.get(Target("a", label="stable")).version == 2
    for labels in (moved,) if allowed else (new, moved):
        with pytest.raises(ServingError) as raised:
            models.reload([ModelConfig("a", bases / "a", labels=labels)])
        assert raised.value.code is grpc.StatusCode.FAILED_PRECONDITION
        assert str(raised.value) == NOT_AVAILABLE.format(7)
    models.stop()


def test_a_server_without_a_file_is_not_asked_to_read_one(server: Server) -> None:
    with pytest.raises(ServingError, match="started without a file"):
        server.models.reload()
    with pytest.raises(ValueError, match="give base_path or model_config_file"):
        Server()


def test_a_file_may_come_and_go_and_moves_its_labels_in_one_reload(bases: Path, tmp_path: Path) -> None:
    """What `bert-tfx models promote` and `rollback` do while a server runs."""
    file = tmp_path / "models.config"
    models = ModelManager([ModelConfig("a", bases / "a")], file)
    models.stores["a"].poll()
    assert models.get(Target("a")).version == 2
    for stable in (1, 2):
        only = f"model_version_policy {{ specific {{ versions: {stable} }} }} {label('stable', stable)}"
        file.write_text(listed(written(bases, "a", only)))
        models.reload()
        assert models.stores["a"].versions == [stable]
        assert models.get(Target("a", label="stable")).version == stable
    file.unlink()
    models.reload()
    assert models.stores["a"].versions == [2]
    with pytest.raises(ServingError, match="Unrecognized servable version label: stable"):
        models.get(Target("a", label="stable"))
    models.stop()
