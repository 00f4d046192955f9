"""Several models, labels, and reloads by RPC and by file, with TensorFlow Serving's messages."""

import gc
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from serving.errors import ServingError
from serving.middleware.settings import SecuritySettings
from serving.models.config import ModelConfig, VersionPolicy
from serving.models.manager import ModelManager, Target
from serving.models.store import ModelStore
from serving.server import Server
from tests.support.serving.running import Waits, predict_request, replace, wait_for

Push = Callable[[Path, int, int], Path]
ADMINISTRATOR = "administrators-token-of-the-tests"
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
    """Sends the tests' requests, over gRPC and REST."""

    def __init__(self, server: Server, channel: grpc.Channel):
        self.server = server
        self._models = model_service_pb2_grpc.ModelServiceStub(channel)
        self._predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict

    def reload(self, config: str) -> None:
        request = model_management_pb2.ReloadConfigRequest()
        if config:
            text_format.Parse(config, request.config)
        metadata = [("authorization", f"Bearer {ADMINISTRATOR}")]
        assert self._models.HandleReloadConfigRequest(request, timeout=60, metadata=metadata).status.error_code == 0

    def refused(self, call: Callable[..., Any], *arguments: Any) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as raised:
            call(*arguments)
        return raised.value.code().name, raised.value.details()

    def number(self, **spec: Any) -> int:
        """Number of the toy that answers; it must match the version in the answer."""
        version, label = spec.pop("version", None), spec.pop("version_label", "")
        request = predict_request("company", **spec, text=["a"])
        request.model_spec.version_label = label
        if version is not None:
            request.model_spec.version.value = version
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
def api(file: Path, bases: Path) -> Iterator[Api]:
    (file.parent / "administrators").write_text(ADMINISTRATOR)
    security = SecuritySettings(
        admin_token_file=str(file.parent / "administrators"), admin_base_paths=(str(bases), str(file.parent))
    )
    with (
        Server(None, "", 0, 0, model_config_file=file, model_config_poll_seconds=0.01, security=security) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        assert server.wait_until_available(120)
        # The highest version serves first.
        wait_for(lambda: server.store.versions == [1, 2])
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
    # Version 1 is unloaded: a label cannot return to it before it is loaded again.
    assert api.refused(api.reload, canary) == ("FAILED_PRECONDITION", NOT_AVAILABLE.format(1))
    assert api.number(name="a", version_label="stable") == 2
    api.reload(listed(written(bases, "a", LATEST_TWO), written(bases, "b")))
    api.reload(canary)
    assert [api.number(name="a", version_label=name) for name in ("stable", "canary")] == [1, 2]
    assert api.server.models.get(Target("b")) is kept


def test_models_are_added_and_removed(api: Api, bases: Path) -> None:
    api.reload(listed(written(bases, "b")))
    assert api.refused(lambda: api.number(name="a"))[0] == "NOT_FOUND" and api.number(name="b") == 3
    assert api.refused(lambda: api.status(name="a")) == ("NOT_FOUND", "Could not find any versions of model a")
    api.reload(listed(written(bases, "a"), written(bases, "b")))
    assert [api.number(name="a"), api.number(name="b")] == [2, 3]
    # The same name at another path: loaded there before it is unloaded here.
    api.reload(listed(written(bases, "b").replace('name: "b"', 'name: "a"')))
    assert api.number(name="a") == 3


def nowhere(config: str, bases: Path, name: str) -> str:
    return config.replace(str(bases / name), str(bases / "nowhere"))


def test_a_reload_that_is_refused_changes_nothing(api: Api, bases: Path, wait_for_polls: Waits) -> None:
    a, b, c = (written(bases, name) for name in "abc")
    only_two = "model_version_policy { specific { versions: 2 } }"
    kept = {name: api.server.models.get(Target("a", name)) for name in (1, 2)}
    configs, absent = list(api.server.models.stores.values()), "did not become available: {"
    for config, code, message in [
        (listed(b, b), "INVALID_ARGUMENT", "Illegal to list model b multiple times"),
        (listed(b.replace(str(bases), "models")), "INVALID_ARGUMENT", "to have an absolute path or URI"),
        (listed(), "INVALID_ARGUMENT", "it names no model"),
        ("custom_model_config {}", "INVALID_ARGUMENT", "Only ModelConfigList is currently supported"),
        (listed(written(bases, "a", label("x", 9)), b), "FAILED_PRECONDITION", NOT_AVAILABLE.format(9)),
        # A policy that would unload version 1, with a label that is refused.
        (listed(written(bases, "a", only_two), written(bases, "b", label("x", 9))), "FAILED_PRECONDITION", "version 9"),
        # One model removed and another one's policy changed, with one that does not load.
        (listed(written(bases, "a", only_two), c), "UNKNOWN", f"1 model(s) {absent}c due to error: "),
        (listed(a, nowhere(b, bases, "b")), "UNKNOWN", f"1 model(s) {absent}b: no version in {bases / 'nowhere'}"),
        (listed(nowhere(a, bases, "a").replace('"a"', '"x"')), "UNKNOWN", f"{absent}x: no version in"),
        (listed(written(bases, "a", "model_version_policy { specific { versions: 9 } }"), b), "UNKNOWN", f"{absent}a"),
    ]:
        found = api.refused(api.reload, config)
        assert found[0] == code and message in found[1] and "\n" not in found[1]
        assert list(api.server.models.stores.values()) == configs
        assert {name: api.server.models.get(Target("a", name)) for name in (1, 2)} == kept
        assert [api.number(name="a", version_label="stable"), api.number(name="b")] == [1, 3]
        assert api.status(name="a") == [(1, "AVAILABLE"), (2, "AVAILABLE")]
    wait_for_polls()  # nor does the next look at the file
    assert api.server.store.versions == [1, 2]


def test_versions_of_a_refused_reload_stay_invisible(bases: Path) -> None:
    only_one = VersionPolicy(latest=None, specific=frozenset([1]))
    models = ModelManager([ModelConfig("a", bases / "a", only_one)])
    models.stores["a"].poll()
    seen: list[Any] = []
    prepare = ModelStore.prepare

    def watched(store: ModelStore, config: ModelConfig) -> Any:
        kept = prepare(store, config)
        seen.append((config.name, sorted(kept), models.get(Target("a")).version))
        return kept

    with pytest.MonkeyPatch.context() as patch, pytest.raises(ServingError):
        patch.setattr(ModelStore, "prepare", watched)
        models.reload([ModelConfig("a", bases / "a"), ModelConfig("c", bases / "c")])
    assert seen == [("a", [2], 1), ("c", [], 1)]
    assert models.get(Target("a")).version == 1 and list(models.stores["a"].status()) == [1]
    models.reload([ModelConfig("a", bases / "a")])
    assert models.stores["a"].versions == [2]
    models.stop()


def test_the_file_is_read_again_on_change_and_on_request(
    api: Api, file: Path, bases: Path, caplog: pytest.LogCaptureFixture, wait_for_polls: Waits
) -> None:
    for broken in ("model_config_list { confi", None):
        caplog.clear()
        replace(file, broken) if broken else file.unlink()
        assert str(file) in api.refused(api.reload, "")[1]
        wait_for_polls()
        (message,) = [text for text in caplog.messages if "the models are unchanged" in text]
        assert str(file) in message and api.number(name="a") == 2
    assert "no such file" in message
    replace(file, listed(written(bases, "b")))
    wait_for(lambda: list(api.server.models.stores) == ["b"])


def test_a_refused_file_is_retried(
    file: Path, bases: Path, tmp_path: Path, push: Push, caplog: pytest.LogCaptureFixture, wait_for_polls: Waits
) -> None:
    """The file names a model that is pushed only later."""
    models = ModelManager(None, file, file_poll_seconds=0.01)
    models.start()
    wait_for(lambda: models.stores["a"].versions == [1, 2])
    (tmp_path / "late").mkdir()
    with caplog.at_level(logging.ERROR):
        replace(file, listed(written(bases, "a"), written(tmp_path, "late")))
        wait_for(lambda: bool(caplog.messages))
        wait_for_polls()
    assert len(caplog.messages) == 1 and "late: no version in" in caplog.messages[0]
    assert list(models.stores) == ["a", "b"] and models.stores["a"].versions == [1, 2]
    push(tmp_path / "late", 7, 3)
    wait_for(lambda: list(models.stores) == ["a", "late"])
    assert models.stores["late"].versions == [7] and models.stores["a"].versions == [2]
    models.stop()


def test_a_reload_reads_the_file_once(file: Path, bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two reads could see two files: the remembered content must be the applied one."""
    models = ModelManager(None, file)
    reads: list[Path] = []
    for name in ("read_bytes", "read_text"):
        read = getattr(Path, name)
        monkeypatch.setattr(Path, name, lambda path, read=read: (reads.append(path), read(path))[1])
    models.reload()
    assert reads.count(file) == 1
    models.stop()


def test_labels_of_unavailable_versions(bases: Path) -> None:
    """The first configuration may have them; later no label is assigned to such a version."""
    models = ModelManager([ModelConfig("a", bases / "a", labels={"stable": 2})])
    with pytest.raises(ServingError) as raised:
        models.get(Target("a", label="stable"))
    assert raised.value.code is grpc.StatusCode.UNAVAILABLE  # the first poll has not finished
    models.stores["a"].poll()
    assert models.get(Target("a", label="stable")).version == 2
    for labels in ({"stable": 2, "next": 7}, {"stable": 7}):
        with pytest.raises(ServingError) as raised:
            models.reload([ModelConfig("a", bases / "a", labels=labels)])
        assert raised.value.code is grpc.StatusCode.FAILED_PRECONDITION
        assert str(raised.value) == NOT_AVAILABLE.format(7)
    models.stop()


def test_a_version_of_a_refused_configuration_is_dropped_silently(bases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, unraised = ModelManager([ModelConfig("a", bases / "a")]), list[object]()
    models.stores["a"].poll()
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    with pytest.raises(ServingError):
        models.reload([ModelConfig("a", bases / "a", VersionPolicy(latest=None)), ModelConfig("c", bases / "c")])
    gc.collect()
    assert not unraised and models.get(Target("a")).version == 2
    models.stop()


def test_reload_without_a_file_is_refused(server: Server) -> None:
    with pytest.raises(ServingError, match="started without a model_config_file"):
        server.models.reload()
    with pytest.raises(ValueError, match="give base_path or model_config_file"):
        Server()


def test_a_file_can_appear_vanish_and_move_labels_in_one_reload(bases: Path, tmp_path: Path) -> None:
    """The changes of `bert-tfx models promote` while a server runs."""
    file = tmp_path / "models.config"
    models = ModelManager([ModelConfig("a", bases / "a")], file)
    models.stores["a"].poll()
    assert models.get(Target("a")).version == 2
    for stable in (1, 2):
        only = f"model_version_policy {{ specific {{ versions: {stable} }} }} {label('stable', stable)}"
        file.write_text(listed(written(tmp_path / "of the host", "a", only)))  # the folder's path in no container
        models.reload()
        assert models.stores["a"].versions == [stable]
        assert models.get(Target("a", label="stable")).version == stable
    file.unlink()
    models.reload()
    assert models.stores["a"].versions == [2]
    with pytest.raises(ServingError, match="Unrecognized servable version label: stable"):
        models.get(Target("a", label="stable"))
    models.stop()


def test_requests_during_the_first_load_are_unavailable(tmp_path: Path) -> None:
    """NOT_FOUND, after which clients do not retry, is only returned once the versions have been looked for."""
    models = ModelManager([ModelConfig("bert", tmp_path)])
    unavailable, not_found = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND
    for code, message in ((unavailable, "still loading: ask again"), (not_found, "nothing yet")):
        with pytest.raises(ServingError, match=f"Servable not found for request: Latest.bert.; .*{message}$") as raised:
            models.get(Target("bert"))
        assert raised.value.code is code
        models.stores["bert"].poll()
