"""`bert-tfx` stopped by Ctrl-C prints one line."""

import contextlib
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import typer

from bert_keras.training.preemption import ctrl_c
from pipeline import cli
from pipeline.examples import beam_jobs

STOPPED = "bert-tfx: stopped by Ctrl-C; run the same command to resume\n"


def ended(monkeypatch, does):
    """Exit code and output of `bert-tfx` when a command raises an error, or calls a function."""
    app = typer.Typer()

    @app.command()
    def command() -> None:
        if isinstance(does, BaseException):
            raise does
        does()

    monkeypatch.setattr("sys.argv", ["bert-tfx"])
    monkeypatch.setattr("os._exit", sys.exit)
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: [])  # of other tests
    with pytest.raises(SystemExit) as end:
        cli.main(app)
    return end.value.code


def test_ctrl_c_prints_that_the_command_can_be_resumed(monkeypatch, capsys):
    assert ended(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == STOPPED


@pytest.fixture
def own_handler():
    """Python's handler; a background job of a shell starts with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pressed(error):
    """A library that makes another error of Ctrl-C."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        while not ctrl_c.is_set():
            time.sleep(0.001)
        raise error from None


def test_an_error_that_a_library_makes_of_ctrl_c_is_ctrl_c(monkeypatch, capsys, own_handler):
    """Beam's "RuntimeError: KeyboardInterrupt [while running ...]", also where a dead worker restarts the command."""
    monkeypatch.setattr(beam_jobs, "_restart", lambda: pytest.fail("it restarts"))
    monkeypatch.setattr(cli, "_SECONDS_TO_STOP", 3600.0)

    def command():
        with beam_jobs.restart_if_a_worker_dies():
            pressed(RuntimeError("Channel closed prematurely"))

    assert ended(monkeypatch, command) == 130
    assert capsys.readouterr().err == STOPPED
    assert ended(monkeypatch, KeyboardInterrupt()) == 130  # the next command


@pytest.mark.parametrize("presses", [1, 2])
def test_a_command_that_ctrl_c_does_not_end_is_ended(monkeypatch, own_handler, presses):
    """At once by the second one."""
    ends = threading.Event()
    monkeypatch.setattr(cli, "_end", ends.set)
    monkeypatch.setattr(cli, "_SECONDS_TO_STOP", 0.0 if presses == 1 else 3600.0)

    def command():
        for _ in range(presses):
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert ends.wait(60)

    assert ended(monkeypatch, command) == 0


def test_a_command_with_a_handler_of_its_own_is_left_to_it(monkeypatch, own_handler):
    """The server drains, which may take longer."""
    monkeypatch.setattr(cli, "_end", lambda: pytest.fail("it is ended"))
    monkeypatch.setattr(cli, "_SECONDS_TO_STOP", 0.0)

    def command():
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.raise_signal(signal.SIGINT)

    assert ended(monkeypatch, command) == 0 and not ctrl_c.is_set()


def test_the_end_takes_child_processes_along():
    code = (
        "import subprocess; from pipeline import cli\n"
        "print(subprocess.Popen(['sleep', '600'], stdout=-3, stderr=-3).pid, flush=True); cli._end()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, STOPPED)
    # A killed process ends when it is next scheduled.
    end = time.monotonic() + 60
    while psutil.pid_exists(int(done.stdout)) and psutil.Process(int(done.stdout)).status() != "zombie":
        assert time.monotonic() < end
        time.sleep(0.1)


def test_other_exits_are_unchanged(monkeypatch, capsys):
    assert ended(monkeypatch, typer.Exit(3)) == 3
    assert capsys.readouterr().err == ""
