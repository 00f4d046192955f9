"""A notice reaches the terminal and the run's file, once, also from a child process."""

import os
import subprocess
import sys

import pytest

from bert_keras import notices
from bert_keras.notices import notify, recorded, recording

CHILD = "from bert_keras.notices import notify\nfor text in ('a', 'b', 'b'): notify(text)"


def test_without_a_run_a_notice_is_printed(capsys):
    notify("a")
    notify("a")
    assert capsys.readouterr() == ("", "bert-tfx: a\n" * 2)


def test_a_run_tells_each_notice_once_and_records_it(tmp_path, capsys):
    """A retry of a stage records in the same file; a stage within a run has a file of its own."""
    first, inner = (str(tmp_path / "notices" / name) for name in ("first", "inner"))
    with recording(first):
        notify("a")
        notify("a")
        with recording(inner):
            notify("a")
        notify("ä\udce9")
    assert capsys.readouterr().err == "bert-tfx: a\n" * 2 + "bert-tfx: ä\\udce9\n"
    with recording(first):
        notify("a")
    assert capsys.readouterr().err == "" and "BERT_TFX_NOTICES" not in os.environ
    assert (recorded(first), recorded(inner), recorded("nowhere")) == (["a", "ä\udce9"], ["a"], [])


def test_notices_of_a_child_are_told_at_the_end(tmp_path, capfd):
    """The child's standard error is a log."""
    path = str(tmp_path / "notices")
    with recording(path):
        notify("a")
        child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, check=True)
        assert (child.stdout, child.stderr) == (b"", b"") and capfd.readouterr().err == "bert-tfx: a\n"
    assert capfd.readouterr().err == "bert-tfx: b\n" and recorded(path) == ["a", "b"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_redirected_standard_error_has_no_notice(capfd, monkeypatch, is_terminal):
    """A progress bar on the terminal leaves the cursor at its end."""
    reader, writer = os.openpty() if is_terminal else os.pipe()
    monkeypatch.setattr(notices, "terminal", writer)
    notify("a\udce9")
    os.close(writer) if not is_terminal else None
    said = os.read(reader, 100).replace(b"\r\n", b"\n")
    assert said == (b"\r\x1b[K" if is_terminal else b"") + b"bert-tfx: a\\udce9\n"
    assert capfd.readouterr().err == ""
