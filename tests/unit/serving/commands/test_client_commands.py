"""Client commands: connection, selection of the version, and failures."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tensorflow as tf
import trustme

from pipeline import cli
from serving.middleware.security import SecuritySettings
from serving.server import Server
from tests.support.serving.running import running

TEXTS = tf.TensorSpec([None], tf.string, name="text")
TOKEN = "correct-horse-battery-staple"


class Numbered(tf.Module):
    """Returns its own number from every signature."""

    def __init__(self, number: int):
        super().__init__()
        self.number = tf.Variable(number)

    @tf.function(input_signature=[TEXTS])
    def fill_mask(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.size(text)
        return {
            "tokens": tf.fill([rows, 1, 1], tf.strings.as_string(self.number)),
            "scores": tf.fill([rows, 1, 1], 0.5),
        }

    @tf.function(input_signature=[TEXTS])
    def encode(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"pooled_output": tf.fill([tf.size(text), 1], tf.cast(self.number, tf.float32))}


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a server and a client, from one CA, and the server's tokens."""
    folder = tmp_path_factory.mktemp("pem")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name, certificate in {"server": ca.issue_cert("127.0.0.1"), "client": ca.issue_cert("a@example.org")}.items():
        certificate.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
        certificate.private_key_pem.write_to_path(folder / f"{name}.key")
    (folder / "tokens").write_text(f"# of the tests\n{TOKEN}\n0123456789abcdef\n")
    (folder / "wrong").write_text("another-token-of-the-tests\n")
    return folder


@pytest.fixture(scope="module")
def server(pem: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Server with version 1, labelled stable, and version 2; requires a client certificate and a token."""
    base = tmp_path_factory.mktemp("versions")
    for number in (1, 2):
        model = Numbered(number)
        signatures = {"serving_default": model.fill_mask, "fill_mask": model.fill_mask, "encode": model.encode}
        tf.saved_model.save(model, str(base / str(number)), signatures)
    config = base / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "numbered" base_path: "{base}" model_version_policy {{ all {{}} }}'
        ' version_labels { key: "stable" value: 1 } } }'
    )
    protected = SecuritySettings(*(str(pem / name) for name in ("server.pem", "server.key", "ca.pem", "tokens")))
    with running(model_config_file=config, security=protected) as server:
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


def reach(server: Server, pem: Path, **changes: str | None) -> list[str]:
    """Options with which `server` answers; a change to None removes one."""
    options: dict[str, str | None] = {
        "server": f"127.0.0.1:{server.grpc_port}",
        "model": "numbered",
        "tls-ca": str(pem / "ca.pem"),
        "tls-certificate": str(pem / "client.pem"),
        "tls-key": str(pem / "client.key"),
        "token-file": str(pem / "tokens"),
    } | changes
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]


@pytest.mark.parametrize(
    "which, number", [({}, 2), ({"version": "1"}, 1), ({"version": "2"}, 2), ({"label": "stable"}, 1)]
)
def test_the_requested_version_answers(
    server: Server, pem: Path, bert_tfx: Callable[..., tuple[int, str, str]], which: dict[str, str], number: int
) -> None:
    options = reach(server, pem, **which)
    code, out, err = bert_tfx("fill-mask", "A [MASK].", *options)
    assert (code, out.split(), err) == (0, ["A", "[MASK].", str(number), "50.00%"], "")
    code, out, err = bert_tfx("encode", "A.", "B.", *options)
    assert code == 0 and [json.loads(line)["pooled_output"] for line in out.splitlines()] == [[number]] * 2, err
    code, out, err = bert_tfx("predict", "A.", *options)
    assert code == 0 and json.loads(out)["tokens"] == [[str(number)]], err


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
    server: Server, pem: Path, bert_tfx: Callable[..., tuple[int, str, str]], changes: dict, code: int, message: str
) -> None:
    ended, out, err = bert_tfx("encode", "A.", *reach(server, pem, **changes))
    assert (ended, out) == (code, "") and message in err and err.count("\n") == 1, err


@pytest.mark.parametrize("word", ["-1", "newest"])
def test_a_version_is_a_number(bert_tfx: Callable[..., tuple[int, str, str]], word: str) -> None:
    code, _, err = bert_tfx("encode", "A.", "--version", word)
    assert code == 2 and "--version" in err


def test_a_load_test_counts_requests_and_errors(
    server: Server, pem: Path, bert_tfx: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"text": "a"}\n\n{"text": "b"}\n{"txt": "c"}\n')
    words = ("load-test", path, "--clients", 2, "--seconds", 0, "--signature", "encode")
    code, out, err = bert_tfx(*words, *reach(server, pem))
    figures = json.loads(out)
    assert (code, err) == (0, "")
    # The clients start at different lines; with no time left, each sends one request.
    assert figures["requests"] == 2 and figures["errors"] == {} and figures["requests_per_second"] > 0
    code, out, _ = bert_tfx(*words[:-4], "--seconds", 0.5, "--signature", "encode", *reach(server, pem))
    figures = json.loads(out)
    assert (
        0 < figures["errors"]["INVALID_ARGUMENT"] < figures["requests"] and 0 < figures["p50_ms"] <= figures["p99_ms"]
    )
    path.write_text("[1]\n")
    code, _, err = bert_tfx(*words, *reach(server, pem))
    assert code == 2 and "requests.jsonl: has no line, or one that is not an object" in err
