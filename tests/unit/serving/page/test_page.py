"""The page's files over a real socket: headers, available paths, and the token.

The page's behaviour is tested in test_page_in_chromium.py.
"""

import http.client
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from serving.middleware.settings import SecuritySettings
from serving.page import routes
from serving.server import Server
from tests.support.serving.running import running

TOKEN = "correct-horse-battery-staple"
FOLDER = Path(routes.__file__).parent
FILES = sorted(file for file in FOLDER.iterdir() if file.suffix not in ("", ".py"))
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Server that requires a token; its model `bert` has no version."""
    folder = tmp_path_factory.mktemp("secured")
    (folder / "tokens").write_text(f"{TOKEN}\n")
    security = SecuritySettings(token_file=str(folder / "tokens"))
    with Server(folder / "none", grpc_port=0, rest_port=0, security=security) as server:
        yield server


def get(server: Server, path: str, token: str | None = None, method: str = "GET") -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    url = f"http://127.0.0.1:{server.rest_port}{path}"
    return httpx.request(method, url, headers=headers, trust_env=False, timeout=120)


def test_every_file_of_the_folder_is_served_and_needs_no_token(secured: Server) -> None:
    served = {path: path.removeprefix("/") or "index.html" for path in routes.PATHS}
    assert set(served.values()) == {file.name for file in FILES}
    for path, name in served.items():
        answer = get(secured, path)
        assert (answer.status_code, answer.content) == (200, (FOLDER / name).read_bytes())
        assert answer.headers["content-type"] == f"{TYPES[Path(name).suffix]}; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == routes.POLICY
        assert get(secured, path, method="HEAD").status_code == 200
    assert {get(secured, path).status_code for path in ("/v1/models", "/page.js/", "//")} == {401}


def test_the_page_takes_no_other_method(secured: Server) -> None:
    answer = get(secured, "/", method="POST")
    assert answer.status_code == 404 and answer.json() == {"error": "Malformed request: POST /"}


@pytest.mark.parametrize(
    "path",
    [
        "/index.html",
        "/page/index.html",
        "/page",
        "/page.py",
        "/../page.py",
        "/page.js/../../security.py",
        "/%2e%2e/security.py",
        "/..%2fsecurity.py",
        "//etc/passwd",
        "/page.js%00.css",
        "/PAGE.JS",
    ],
)
def test_files_outside_the_folder_are_not_served(secured: Server, path: str) -> None:
    # http.client sends a path unchanged, dots included.
    connection = http.client.HTTPConnection("127.0.0.1", secured.rest_port, timeout=120)
    for token, status in ((TOKEN, 404), (None, 401), (TOKEN[:-1], 401)):
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (status, "application/json"), answer.read()
        answer.read()
    connection.close()


def test_the_policy_allows_this_server_only() -> None:
    directives = dict(directive.split(" ", 1) for directive in routes.POLICY.split("; "))
    assert directives["default-src"] == "'none'" and directives["require-trusted-types-for"] == "'script'"
    assert set(directives.values()) == {"'none'", "'self'", "data:", "'script'"}
    assert [name for name, sources in directives.items() if sources == "data:"] == ["img-src"]


def test_the_document_loads_only_these_files_and_has_no_code_inside() -> None:
    document = (FOLDER / "index.html").read_text()
    loaded = re.findall(r"""\s(?:src|href|action|data)\s*=\s*["']?([^"'\s>]*)""", document)
    assert sorted(loaded) == ["data:,", "page.css", "page.js"]
    assert not re.search(r"<style|\sstyle\s*=|\son\w+\s*=|<script(?![^>]*\ssrc\s*=)", document)
    for file in FILES:
        text = file.read_text()
        assert "http:" not in text and "https:" not in text and "innerHTML" not in text, file.name


def test_a_version_is_listed_with_the_mask_that_its_vocabulary_has(
    tmp_path: Path, push: Callable[[Path, int, int], Path]
) -> None:
    for version, spec in enumerate(('{"algorithm": "byte_bpe"}', '{"algorithm": "wordpiece"}', "{}", "no JSON"), 1):
        (push(tmp_path, version, 1) / "vocab_spec.json").write_text(spec)
    config = f'model_config_list {{ config {{ name: "bert" base_path: "{tmp_path}" model_platform: "tensorflow" '
    (tmp_path / "models").write_text(config + "model_version_policy { all {} } } }")
    with running(model_config_file=tmp_path / "models") as server:
        (bert,) = get(server, "/v1/models").json()["models"]
        assert [status.get("mask") for status in bert["model_version_status"]] == ["<mask>", "[MASK]", None, None]
        assert "mask" not in get(server, "/v1/models/bert").text  # as of TensorFlow Serving


def test_the_models_are_listed(server: Server, secured: Server) -> None:
    available = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    bert = {"name": "bert", "labels": {}, "model_version_status": [available]}
    answer = get(server, "/v1/models").json()
    assert answer["models"] == [bert]
    (model,) = answer["data"]  # as OpenAI lists it
    assert (answer["object"], model["id"], model["object"], model["owned_by"]) == ("list", "bert", "model", "bert-tfx")
    assert isinstance(model["created"], int)
    # A model without versions is listed, too; its own status is NOT_FOUND.
    assert get(secured, "/v1/models", TOKEN).json()["models"] == [bert | {"model_version_status": []}]
    assert get(secured, "/v1/models/bert", TOKEN).status_code == 404
