"""`bert-tfx` stopped by Ctrl-C prints one line."""

import pytest
import typer

from pipeline import cli


def ended(monkeypatch, error):
    """How `bert-tfx` exits when a command raises."""
    app = typer.Typer()

    @app.command()
    def command() -> None:
        raise error

    monkeypatch.setattr("sys.argv", ["bert-tfx"])
    with pytest.raises(SystemExit) as end:
        cli.main(app)
    return end.value.code


def test_ctrl_c_prints_that_the_command_can_be_resumed(monkeypatch, capsys):
    assert ended(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "bert-tfx: stopped by Ctrl-C; run the same command to resume\n"


def test_other_exits_are_unchanged(monkeypatch, capsys):
    assert ended(monkeypatch, typer.Exit(3)) == 3
    assert capsys.readouterr().err == ""
