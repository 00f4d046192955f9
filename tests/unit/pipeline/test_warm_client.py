"""`bert-tfx warm`: as without it, but for the seconds; nothing outlives its client or its server."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bert_keras.errors import InputError, StageError
from pipeline import warm_client, warm_server

BERT_TFX = Path(sys.executable).with_name("bert-tfx")
# NumPy's BLAS has the name of its program. TensorFlow's, gRPC's and Beam's would not survive a fork.
SURVIVE_A_FORK = {"python", "bert-tfx", "jemalloc_bg_thd"}
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two"]
# Answers that each request ended well, and writes its own environment beside its socket.
STUB = """#!{python}
import json, os, socket, sys
with socket.socket(fileno=int(sys.argv[-1])) as listener:
    with open(os.path.join({folder!r}, "environ.json"), "w") as file:
        json.dump(dict(os.environ), file)
    client, _ = listener.accept()
    client.recv(1 << 20)
    client.sendall({answer!r})
"""


class Warm:
    """A folder with one server, and commands that run in its forks."""

    def __init__(self, folder):
        (folder / "here").mkdir()
        (folder / "here" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        self.cwd, self.environ = folder / "here", {**os.environ, "XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(folder)}

    def start(self, *words):
        """Starts a command."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [BERT_TFX, "warm", *words]
        return subprocess.Popen(command, cwd=self.cwd, env=self.environ, text=True, bufsize=1, **streams)

    def ask(self, *words, text=""):
        """Exit code, standard output, standard error of a command."""
        process = self.start(*words)
        out, err = process.communicate(text)
        return process.returncode, out, err

    def tokenizing(self):
        """A command that waits for lines, and the process that was forked for it."""
        process = self.start("tokenize", "--vocab", "vocab.txt")
        return process, until(self.server.children)[0]

    @property
    def server(self):
        """The server's process."""
        (found,) = self.servers()
        return found

    def servers(self):
        """Its server, if there is one: it was told of this folder for temporary files."""
        found = [p for p in psutil.process_iter(["cmdline", "environ"]) if self._serves(**p.info)]
        return [p for p in found if p.ppid() not in {other.pid for other in found}]  # not what it has forked

    def _serves(self, cmdline, environ):
        return "pipeline.warm_server" in (cmdline or []) and (environ or {}).get("TMPDIR") == self.environ["TMPDIR"]


def until(ask, seconds=60):
    """The first answer that is one."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    made = Warm(tmp_path_factory.mktemp("warm"))
    code, out, _ = made.ask("recipes")
    assert code == 0 and "tiny_cpu" in out
    yield made
    for server in made.servers():
        server.kill()


def test_a_command_has_its_clients_words_streams_and_folder(warm):
    assert warm.ask("tokenize", "--vocab", "vocab.txt", text="one two\nthree\n")[:2] == (0, "5 6\n1\n")


def test_exit_codes_and_errors_are_the_commands_own(warm):
    code, out, err = warm.ask("recipes", "nothing")
    assert (code, out) == (2, "") and err.startswith("bert-tfx: nothing: no such task") and err.count("\n") == 1
    code, _, err = warm.ask("recipes", "--nothing")
    assert code == 2 and "bert-tfx recipes [OPTIONS]" in err


def test_what_was_imported_before_a_fork_has_no_thread_that_a_fork_would_lose(warm):
    names = {(task / "comm").read_text().strip() for task in Path(f"/proc/{warm.server.pid}/task").iterdir()}
    assert names <= SURVIVE_A_FORK


def test_a_killed_client_takes_its_command_with_it(warm):
    client, command = warm.tokenizing()
    client.kill()
    until(lambda: not command.is_running() or command.status() == psutil.STATUS_ZOMBIE)
    assert warm.ask("recipes")[0] == 0


def test_a_killed_command_is_told(warm):
    client, command = warm.tokenizing()
    command.kill()
    _, err = client.communicate()
    assert client.returncode == 128 + signal.SIGKILL
    assert err == "bert-tfx: tokenize was killed by SIGKILL\n"


def test_a_signal_reaches_the_command(warm):
    client, _ = warm.tokenizing()
    client.terminate()
    _, err = client.communicate()
    assert client.returncode == 128 + signal.SIGTERM and "SIGTERM" in err


def test_commands_run_beside_each_other(warm):
    first, _ = warm.tokenizing()
    assert warm.ask("tokenize", "--vocab", "vocab.txt", text="two\n")[1] == "6\n"
    assert first.communicate("one\n")[0] == "5\n"


def test_a_killed_server_takes_its_commands_with_it(warm):
    client, command = warm.tokenizing()  # it would wait for lines still
    warm.server.kill()
    until(lambda: not command.is_running())
    assert client.wait() == 1
    assert "the server of warm processes ended" in client.communicate()[1]


def stub(tmp_path, monkeypatch, answer):
    python = tmp_path / "python"
    python.write_text(STUB.format(python=sys.executable, folder=str(tmp_path), answer=answer))
    python.chmod(0o755)
    monkeypatch.setattr(warm_client.sys, "executable", str(python))


def test_a_server_is_started_without_the_clients_secrets(tmp_path, monkeypatch):
    stub(tmp_path, monkeypatch, (0).to_bytes(4, "big"))
    monkeypatch.setenv("BERT_TFX_METADATA_PASSWORD", "planted")
    monkeypatch.setenv("TF_XLA_FLAGS", "--kept")
    assert warm_client.run(["recipes"], tmp_path) == 0
    told = (tmp_path / "environ.json").read_text()
    assert "--kept" in told and "planted" not in told


def test_a_socket_that_nobody_listens_on_is_replaced(tmp_path, monkeypatch):
    stub(tmp_path, monkeypatch, (2 << 8).to_bytes(4, "big"))
    assert warm_client.run(["recipes"], tmp_path) == 2
    assert warm_client.run(["recipes"], tmp_path) == 2  # the first one has ended, its socket is there


def test_a_server_that_ends_is_told(tmp_path, monkeypatch):
    stub(tmp_path, monkeypatch, b"")
    with pytest.raises(StageError, match=r"server of warm processes ended; .*\.log may say why"):
        warm_client.run(["recipes"], tmp_path)


def test_another_code_has_another_server(monkeypatch):
    key = warm_client._key({})
    assert key == warm_client._key({}) != warm_client._key({"TF_XLA_FLAGS": "1"})
    monkeypatch.setattr(warm_client, "code_of_this_project", lambda: "other")
    assert warm_client._key({}) != key


@pytest.mark.parametrize(("idle_seconds", "removed"), [(0.01, False), (3600, True)])
def test_a_server_that_is_idle_or_out_of_reach_ends(tmp_path, monkeypatch, idle_seconds, removed):
    monkeypatch.setattr(warm_server, "SECONDS_BETWEEN_LOOKS", 0.02)
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        if removed:
            path.unlink()
        assert warm_server.WarmServer(listener, idle_seconds).serve() is None
    assert not path.exists()


def test_a_folder_that_others_can_enter_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"bert-tfx-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(InputError, match="only its owner"):
        warm_client.run(["recipes"])
