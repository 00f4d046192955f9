"""`bert-tfx` in a shell: help, version, and output to a file or another program."""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys

import pytest
import typer
from rich.console import Console
from typer.main import get_command

from bert_keras.errors import InputError
from pipeline import cli
from pipeline.runs.request import RunRequest
from pipeline.runs.resolve import resolve, without_inputs
from pipeline.runs.served_versions import write_labels
from pipeline.summaries.summary import print_rows
from tests.support.pipeline.command_line import bert_tfx

# Prints the help of every command, separated by form feeds.
ALL_HELP = """
import sys
from pipeline import cli
from typer.main import get_command

def tell(command, words):
    print("\\f" + " ".join(words))
    sys.stdout.flush()
    try:
        cli.app(args=[*words, "--help"])
    except SystemExit:
        pass
    for name, below in getattr(command, "commands", {}).items():
        tell(below, [*words, name])

cli._prepare_terminal()
tell(get_command(cli.app), [])
"""


def commands(command, words=()):
    """All commands below a group, with their words."""
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*words, name))


@pytest.fixture(scope="module")
def piped_help():
    """The help of each command in a pipe, by the command's words."""
    unset = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "TERMINAL_WIDTH")}
    told = subprocess.run([sys.executable, "-c", ALL_HELP], capture_output=True, text=True, check=True, env=unset)
    pages = (page.partition("\n") for page in told.stdout.split("\f")[1:])
    return {tuple(words.split()): text for words, _, text in pages}


def test_piped_help_cuts_no_name(piped_help):
    found = dict(commands(get_command(cli.app)))
    assert len(found) > 25 and piped_help.keys() == found.keys()
    for words, command in found.items():
        assert "…" not in piped_help[words], words
        for option in (name for parameter in command.params for name in parameter.opts if name.startswith("--")):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", piped_help[words]), (words, option)


def test_every_command_is_in_a_group_of_the_help(piped_help):
    panels = re.findall(r"^╭─ (.*?) ─", piped_help[()], re.MULTILINE)
    assert panels == ["Options", *cli._COMMANDS]


def test_the_version_is_the_packages():
    assert bert_tfx("--version") == (0, f"bert-tfx {importlib.metadata.version('bert-tfx')}\n", "")


def test_another_backend_of_keras_is_ignored_aloud(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    code, _, err = bert_tfx("recipes")
    assert (code, err.count("\n"), os.environ["KERAS_BACKEND"]) == (0, 1, "tensorflow")
    assert err.startswith("bert-tfx: KERAS_BACKEND=torch is ignored")
    assert bert_tfx("recipes")[2] == ""


@pytest.fixture
def only_jax(monkeypatch):
    """TensorFlow cannot be found."""
    find = importlib.util.find_spec
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None if name == "tensorflow" else find(name))


def test_keras_computes_with_jax_where_tensorflow_is_missing(monkeypatch, only_jax):
    monkeypatch.setenv("KERAS_BACKEND", "")
    assert bert_tfx("recipes")[2] == "" and os.environ["KERAS_BACKEND"] == "jax"
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    assert bert_tfx("recipes")[2].startswith("bert-tfx: KERAS_BACKEND=tensorflow is ignored")
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None)
    assert bert_tfx("recipes")[2].startswith("bert-tfx: KERAS_BACKEND=jax is ignored")


def test_a_command_without_its_packages_names_the_extra(only_jax):
    application = typer.Typer()

    @application.command()
    def serve():
        raise ModuleNotFoundError("No module named 'tfx'", name="tfx")

    code, _, err = bert_tfx(application=application)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("bert-tfx: this command needs tfx") and "pip install 'bert-tfx[pipeline]'" in err


def test_an_unknown_recipe_is_refused_with_the_known_ones():
    code, out, err = bert_tfx("recipes", "demo")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert (
        err.startswith("bert-tfx: demo: no such recipe (tiny_cpu, ") and " and no such task (" in err and "sst-2" in err
    )


def test_an_argument_that_is_not_utf8_is_refused():
    code, _, err = bert_tfx("examples", "--corpus", os.fsdecode(b"caf\xe9.txt"), "--output", "out")
    assert code == 2 and err.startswith("bert-tfx: b'caf\\xe9.txt' is not UTF-8; rename the file")


@pytest.mark.parametrize(("folder", "promoted", "model"), [("", None, "12"), ("", 7, "7"), ("serving", None, "12")])
def test_a_run_directory_as_init_is_refused_with_its_served_model(tmp_path, folder, promoted, model):
    for version in ("7", "12"):
        (tmp_path / "serving" / version).mkdir(parents=True)
    if promoted:
        write_labels(str(tmp_path / "serving"), {"stable": promoted})
    given = tmp_path / folder
    line = f"--init {given}: is a folder of several versions, not a model; give --init {tmp_path}/serving/{model}"
    with pytest.raises(InputError) as refused:
        resolve(RunRequest("sst-2", str(tmp_path / "run"), init=str(given), data="x"), "1")
    assert str(refused.value) == line
    with pytest.raises(InputError) as refused:
        without_inputs(RunRequest("continued", str(tmp_path / "run"), init=str(given)))
    assert str(refused.value) == line


def test_a_summary_is_a_line_a_row_at_any_width(monkeypatch, capsys):
    path = "/somewhere/" + "runs/of/many/words/" * 10 + "predictions/eval/predictions.json"
    monkeypatch.setattr("pipeline.summaries.summary.Console", lambda **given: Console(width=40, **given))
    print_rows({"data": "[UNK] 0.03%, [bold] :smile: [/x]", "predictions": path})
    assert capsys.readouterr().out.splitlines() == [
        "  data           [UNK] 0.03%, [bold] :smile: [/x]",
        f"  predictions    {path}",
    ]


def test_a_shell_completes_commands():
    code = "import sys; sys.argv[0] = 'bert-tfx'; from pipeline import cli; cli.main()"
    asked = {"_BERT_TFX_COMPLETE": "complete_bash", "COMP_WORDS": "bert-tfx pre", "COMP_CWORD": "1"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **asked})
    assert told.stdout.split() == ["pretrain", "predict"]
