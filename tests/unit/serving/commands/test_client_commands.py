"""Client commands: connection, selection of the version, and failures."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline import cli
from serving.client import Client
from serving.server import Server
from tests.support.serving.pem import Files
from tests.support.serving.running import running


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("pem"))


@pytest.fixture(scope="module")
def server(pem: Files, push: Callable[[Path, int, int], Path]) -> Iterator[Server]:
    """Server with version 1, labelled stable, and version 2; requires a client certificate and a token."""
    (base := pem.folder / "versions").mkdir()
    for number in (1, 2):
        push(base, number, number)
    (pem.folder / "models.config").write_text(
        f'model_config_list {{ config {{ name: "numbered" base_path: "{base}" model_version_policy {{ all {{}} }}'
        ' version_labels { key: "stable" value: 1 } } }'
    )
    with running(model_config_file=pem.folder / "models.config", security=pem.settings()) as server:
        yield server


@pytest.fixture
def bert_tfx(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process; returns exit code, standard output and standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bert-tfx", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return run


def reach(server: Server, pem: Files, **changes: str | None) -> list[str]:
    """Options with which `server` answers; a change to None removes one."""
    options: dict[str, str | None] = {
        "server": f"127.0.0.1:{server.grpc_port}",
        "model": "numbered",
        "tls-ca": pem("ca.pem"),
        "tls-certificate": pem("client.pem"),
        "tls-key": pem("client.key"),
        "token-file": pem("tokens"),
    } | changes
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]


@pytest.mark.parametrize(
    "which, number", [({}, 2), ({"version": "1"}, 1), ({"version": "2"}, 2), ({"label": "stable"}, 1)]
)
def test_the_requested_version_answers(
    server: Server,
    pem: Files,
    bert_tfx: Callable[..., tuple[int, str, str]],
    which: dict[str, str],
    number: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options, found, find = reach(server, pem, **which), [], server.inference.find
    monkeypatch.setattr(server.inference, "find", lambda *given: (found.append(find(*given)), found[-1])[1])
    code, out, err = bert_tfx("fill-mask", "A [MASK].", *options)
    assert (code, out.split(), err) == (0, ["A", "[MASK].", "0a", "20.00%", "0b", "10.00%"], "")
    code, out, err = bert_tfx("predict", "A [MASK].", *options)
    assert code == 0 and json.loads(out)["tokens"] == [["0a", "0b"]], err
    for name, vectors in (("embedding", [[1, 0.2], [1.5, 0.3]]), ("pooled_output", [[2] * 3, [3] * 3])):
        code, out, err = bert_tfx("encode", "A.", "Bc.", *options)
        assert code == 0 and [json.loads(line)[name] for line in out.splitlines()] == vectors, err
        monkeypatch.setattr(Client, "metadata", lambda _: {})  # of a model without vectors of texts
    assert {servable.version for servable in found} == {number}


@pytest.mark.parametrize(
    "changes, code, message",
    [
        # User errors: nothing is sent.
        ({"tls-key": None}, 2, "a client certificate requires its key and the server's CA file"),
        ({"tls-ca": "nowhere.pem"}, 2, "nowhere.pem: no such file"),
        ({"token-file": "nowhere"}, 2, "token file nowhere: no such file"),
        ({"version": "1", "label": "stable"}, 2, "version 1 and label stable were given: choose one of them"),
        ({"label": "canary"}, 2, "canary"),
        # No server, or not for this client.
        ({"version": "3"}, 1, "Specific(numbered, 3)"),
        ({"model": "bert"}, 1, "Latest(bert)"),
        ({"token-file": None}, 1, "no valid bearer token"),
        ({"tls-ca": None, "tls-certificate": None, "tls-key": None}, 1, "no server reachable at 127.0.0.1"),
    ],
    ids=str,
)
def test_errors_are_one_line(
    server: Server, pem: Files, bert_tfx: Callable[..., tuple[int, str, str]], changes: dict, code: int, message: str
) -> None:
    ended, out, err = bert_tfx("encode", "A.", *reach(server, pem, **changes))
    assert (ended, out) == (code, "") and message in err and err.count("\n") == 1, err


@pytest.mark.parametrize("word", ["-1", "newest"])
def test_a_version_is_a_number(bert_tfx: Callable[..., tuple[int, str, str]], word: str) -> None:
    code, _, err = bert_tfx("encode", "A.", "--version", word)
    assert code == 2 and "--version" in err
