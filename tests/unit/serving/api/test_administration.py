"""HandleReloadConfigRequest: authorisation, allowed folders, and the log."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc

from serving.client import Client, ClientError
from serving.errors import SettingsError
from serving.middleware.security import check_security
from serving.middleware.settings import SecuritySettings
from serving.server import Server
from tests.support.serving.running import running

USER, ADMINISTRATOR = "token-of-those-who-ask", "token-of-the-administrators"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, push: Callable[[Path, int, int], Path]) -> Path:
    """`served`, `allowed/other` and `elsewhere` contain a model each; `allowed/link` points to elsewhere."""
    folder = tmp_path_factory.mktemp("administered")
    for number, name in enumerate(("served", "allowed/other", "elsewhere"), 1):
        (folder / name).mkdir(parents=True)
        push(folder / name, number, number)
    (folder / "allowed/link").symlink_to(folder / "elsewhere")
    (folder / "users").write_text(USER)
    (folder / "administrators").write_text(ADMINISTRATOR)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    security = SecuritySettings(
        token_file=str(folder / "users"),
        admin_token_file=str(folder / "administrators"),
        admin_base_paths=(str(folder / "allowed"),),
    )
    with running(folder / "served", security=security) as server:
        yield server


def listed(**models: Path | str) -> str:
    configs = [f'config {{ name: "{name}" base_path: "{path}" }}' for name, path in models.items()]
    return f"model_config_list {{ {' '.join(configs)} }}"


def reload(server: Server, config: str, token: str | None = ADMINISTRATOR) -> tuple[str, str]:
    request = model_management_pb2.ReloadConfigRequest()
    text_format.Parse(config, request.config)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        metadata = [("authorization", f"Bearer {token}")] if token else []
        try:
            stub.HandleReloadConfigRequest(request, timeout=60, metadata=metadata)
        except grpc.RpcError as error:
            return error.code().name, error.details()
    return "OK", ""


@pytest.mark.parametrize("token", [USER, None, ADMINISTRATOR + "x"])
def test_a_client_token_does_not_authorise_reloads(server: Server, folder: Path, token: str | None) -> None:
    code, message = reload(server, listed(bert=folder / "allowed/other"), token)
    assert code == "UNAUTHENTICATED" and "no administrator's token" in message
    assert server.store.base_path == folder / "served"


def test_an_administrators_token_does_not_authorise_requests(server: Server) -> None:
    address = f"127.0.0.1:{server.grpc_port}"
    with Client(address, token=ADMINISTRATOR) as client, pytest.raises(ClientError) as refused:
        client.predict({"text": ["abc"]}, "length")
    assert refused.value.code is grpc.StatusCode.UNAUTHENTICATED
    with Client(address, token=USER) as client:
        assert client.predict({"text": ["abc"]}, "length")["length"].tolist() == [3]


def test_without_admin_tokens_reloads_are_disabled(folder: Path) -> None:
    with Server(folder / "served", grpc_port=0, rest_port=0) as server:
        for token in (None, ADMINISTRATOR):
            code, message = reload(server, listed(bert=folder / "elsewhere"), token)
            assert code == "PERMISSION_DENIED" and "started without --admin-token-file" in message
        assert server.store.base_path == folder / "served"


@pytest.mark.parametrize("path", ["elsewhere", "allowed/link", "allowed/../elsewhere", "allowed-too", "served/.."])
def test_models_load_only_from_allowed_folders(
    server: Server, folder: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    code, message = reload(server, listed(bert=folder / "served", other=f"{folder}/{path}"))
    assert code == "PERMISSION_DENIED" and f"{folder}/{path} is not below an allowed folder" in message
    assert list(server.models.stores) == ["bert"]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "serving.api.grpc_service"]
    assert "was refused" in line and f"{folder}/{path}" in line


def test_a_change_is_logged_with_its_caller_and_content(
    server: Server, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        both = listed(bert=folder / "served", other=folder / "allowed/other")
        assert reload(server, both) == ("OK", "")
        assert list(server.models.stores) == ["bert", "other"]
        assert reload(server, listed())[0] == "INVALID_ARGUMENT"
        assert list(server.models.stores) == ["bert", "other"]
        assert reload(server, listed(bert=folder / "served")) == ("OK", "")
    lines = [record.getMessage() for record in caplog.records if record.name == "serving.api.grpc_service"]
    assert len(lines) == 3 and ADMINISTRATOR not in caplog.text
    # $ printf %s token-of-the-administrators | sha256sum
    assert all(line.startswith("ipv4:127.0.0.1:") and " and token 2b5dc28a " in line for line in lines)
    assert f'name: "other" base_path: "{folder}/allowed/other"' in lines[0] and " changed the models to: " in lines[0]
    assert "it names no model" in lines[1]


def test_clients_are_no_administrators(folder: Path) -> None:
    with pytest.raises(SettingsError, match="users share a token"):
        users = str(folder / "users")
        check_security(SecuritySettings(token_file=users, admin_token_file=users), "::1")
