"""`bert-tfx warm` behaves as without `warm`; no process outlives its client or its server."""

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
from pipeline.fork_server import client, server
from tests.support.processes import has_ended

pytestmark = pytest.mark.programs
BERT_TFX = Path(sys.executable).with_name("bert-tfx")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two"]
# Reports that each request ended well, and writes its own environment to a file beside its socket.
STUB = """#!{python}
import json, os, socket, sys
with socket.socket(fileno=int(sys.argv[-1])) as listener:
    with open(os.path.join({folder!r}, "environ.json"), "w") as file:
        json.dump(dict(os.environ), file)
    client, _ = listener.accept()
    client.recv(1 << 20)
    client.sendall({answer!r})
"""


# Ends as a command that is killed by the first signal that its client forwards.
SIGNALLED = """#!{python}
import socket, sys
with socket.socket(fileno=int(sys.argv[-1])) as listener:
    client, _ = listener.accept()
    client.settimeout(60)
    request = client.makefile("rb")
    request.read(int.from_bytes(request.read(8), "big"))
    client.sendall(request.read(1)[0].to_bytes(4, "big"))
"""


class Warm:
    """A folder with one server, and commands that run in its forks."""

    def __init__(self, folder):
        (folder / "here").mkdir()
        (folder / "here" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        self.cwd, self.environ = folder / "here", {**os.environ, "XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(folder)}

    def start(self, *words):
        """Start a command."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [BERT_TFX, "warm", *words]
        return subprocess.Popen(command, cwd=self.cwd, env=self.environ, text=True, bufsize=1, **streams)

    def ask(self, *words, text=""):
        """Exit code, standard output, standard error of a command."""
        process = self.start(*words)
        out, err = process.communicate(text)
        return process.returncode, out, err

    def tokenizing(self):
        """A command that waits for lines, and its forked process."""
        process = self.start("tokenize", "--vocab", "vocab.txt")
        return process, until(self.server.children)[0]

    @property
    def server(self):
        """The server's process."""
        (found,) = self.servers()
        return found

    def servers(self):
        """This folder's server, if it runs: its temporary folder identifies it."""
        found = [p for p in psutil.process_iter(["cmdline", "environ", "ppid"]) if self._serves(**p.info)]
        return [p for p in found if p.info["ppid"] not in {other.pid for other in found}]  # without its forks

    def _serves(self, cmdline, environ, ppid):
        return (
            "pipeline.fork_server_main" in (cmdline or []) and (environ or {}).get("TMPDIR") == self.environ["TMPDIR"]
        )


def until(ask, seconds=240):
    """The first true answer within a time limit."""
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
    for process in made.servers():
        process.kill()


def test_a_command_has_its_client_s_arguments_streams_and_folder(warm):
    assert warm.ask("tokenize", "--vocab", "vocab.txt", text="one two\nthree\n")[:2] == (0, "5 6\n1\n")


def test_exit_codes_and_errors_are_the_command_s(warm):
    code, out, err = warm.ask("recipes", "nothing")
    assert (code, out) == (2, "") and err.startswith("bert-tfx: nothing: no such recipe") and err.count("\n") == 1
    code, _, err = warm.ask("recipes", "--nothing")
    assert code == 2 and err.startswith("Usage: bert-tfx recipes [OPTIONS]")


def test_preloaded_modules_leave_no_threads_that_a_fork_would_lose(warm):
    threads = [(task / "comm").read_text().strip() for task in Path(f"/proc/{warm.server.pid}/task").iterdir()]
    # NumPy's BLAS ends its threads before a fork; jemalloc (Arrow's) restarts its own after it.
    assert sorted(threads) in (["python"], ["jemalloc_bg_thd", "python"])


def test_a_killed_client_s_command_is_killed(warm):
    client, command = warm.tokenizing()
    client.kill()
    until(lambda: has_ended(command))
    assert warm.ask("recipes")[0] == 0


def test_a_killed_command_is_reported(warm):
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


def test_commands_run_concurrently(warm):
    first, _ = warm.tokenizing()
    assert warm.ask("tokenize", "--vocab", "vocab.txt", text="two\n")[1] == "6\n"
    assert first.communicate("one\n")[0] == "5\n"


def test_a_killed_server_s_commands_are_killed(warm):
    client, command = warm.tokenizing()  # it would still wait for lines
    warm.server.kill()
    until(lambda: has_ended(command))
    assert client.wait() == 1
    assert "the fork server ended before the command" in client.communicate()[1]


def stub(tmp_path, monkeypatch, answer, text=STUB):
    python = tmp_path / "python"
    python.write_text(text.format(python=sys.executable, folder=str(tmp_path), answer=answer))
    python.chmod(0o755)
    monkeypatch.setattr(client.sys, "executable", str(python))


def test_a_server_is_started_without_the_clients_secrets(tmp_path, monkeypatch):
    stub(tmp_path, monkeypatch, (0).to_bytes(4, "big"))
    monkeypatch.setenv("BERT_TFX_METADATA_PASSWORD", "planted")
    monkeypatch.setenv("TF_XLA_FLAGS", "--kept")
    assert client.run(["recipes"], tmp_path) == 0
    told = (tmp_path / "environ.json").read_text()
    assert "--kept" in told and "planted" not in told


def test_a_signal_is_forwarded_however_soon_it_comes(tmp_path, monkeypatch, capsys):
    """As soon as there may be a command: it may not reach this client before it can forward it."""
    stub(tmp_path, monkeypatch, b"", SIGNALLED)
    send, lost = socket.send_fds, []
    before = signal.signal(signal.SIGTERM, lambda *_: lost.append("SIGTERM"))

    def signalled(*given):
        send(*given)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(client.socket, "send_fds", signalled)
    try:
        assert client.run(["recipes"], tmp_path) == 128 + signal.SIGTERM and lost == []
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err == "bert-tfx: recipes was killed by SIGTERM\n"


def test_an_orphaned_socket_is_replaced(tmp_path, monkeypatch):
    stub(tmp_path, monkeypatch, (2 << 8).to_bytes(4, "big"))
    assert client.run(["recipes"], tmp_path) == 2
    (path,) = tmp_path.glob("*.sock")
    with pytest.raises(ConnectionRefusedError):  # as soon as the first server has ended; it leaves its socket
        for _ in range(12_000):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
            time.sleep(0.01)
    assert client.run(["recipes"], tmp_path) == 2


def test_the_end_of_a_server_is_reported(tmp_path, monkeypatch):
    stub(tmp_path, monkeypatch, b"")
    with pytest.raises(StageError, match=r"fork server ended before the command; see .*\.log"):
        client.run(["recipes"], tmp_path)


def test_changed_code_starts_another_server(monkeypatch):
    key = client._key({})
    assert key == client._key({}) != client._key({"TF_XLA_FLAGS": "1"})
    monkeypatch.setattr(client, "code_of_this_project", lambda: "other")
    assert client._key({}) != key


@pytest.mark.parametrize(("idle_seconds", "removed"), [(0.01, False), (3600, True)])
def test_an_idle_or_unreachable_server_ends(tmp_path, monkeypatch, idle_seconds, removed):
    monkeypatch.setattr(server, "SECONDS_BETWEEN_LOOKS", 0.02)
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        if removed:
            path.unlink()
        assert server.WarmServer(listener, idle_seconds).serve() is None
    assert not path.exists()


def test_a_folder_that_others_can_enter_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"bert-tfx-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(InputError, match="only its owner"):
        client.run(["recipes"])
