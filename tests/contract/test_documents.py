"""The documents are true: commands parse, files exist, the command line's page is its own help."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from bert_keras.config import BertConfig
from components.pretrain_example_gen.settings import ExampleSettings
from pipeline.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("components/*.md")])
FENCED = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(program, page="README.md"):
    """Every command of a page that starts with a program, as words."""
    lines = "\n".join(FENCED.findall((ROOT / page).read_text())).splitlines()
    words = [shlex.split(line.partition(" < ")[0], comments=True) for line in lines]
    return [w for w in words if w and Path(w[0]).name == program]


def test_the_readme_has_its_two_commands_first():
    first = FENCED.search((ROOT / "README.md").read_text())[1]
    assert [line.split("#")[0].strip() for line in first.strip().splitlines()] == ["make demo", "make test"]


@pytest.mark.parametrize("words", commands("bert-tfx") + commands("bert-tfx", "docs/training.md"), ids=" ".join)
def test_commands_of_the_readme_and_of_training_parse(words):
    from pipeline.config import with_settings
    from pipeline.recipes import RECIPES

    group = typer.main.get_command(app)
    command = group.commands[words[1]]
    context = command.make_context(words[1], words[2:])  # raises on an unknown option or a missing argument
    if "recipe" in context.params:
        with_settings(RECIPES[context.params["recipe"]](), context.params["settings"] or [])


def test_make_commands_of_the_readme_are_targets():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {words[1] for words in commands("make")}
    assert wanted >= {"demo", "test"}
    assert wanted <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


def test_the_page_of_the_command_line_is_its_help():
    generate = [str(Path(sys.executable).with_name("typer")), "pipeline.cli", "utils", "docs", "--name", "bert-tfx"]
    page = subprocess.run(generate, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert page.strip() == (ROOT / "docs" / "cli.md").read_text().strip(), "make docs writes it again"


def test_the_help_of_examples_tells_the_settings_own_defaults():
    page = (ROOT / "docs" / "cli.md").read_text()
    section = page[page.index("## `bert-tfx examples`") : page.index("## `bert-tfx tokenize`")]
    for option, default in {
        "vocab-size": BertConfig.vocab_size,
        "max-seq-length": ExampleSettings.max_seq_length,
        "dupe-factor": ExampleSettings.dupe_factor,
        "objective": ExampleSettings.objective,
        "seed": ExampleSettings.seed,
    }.items():
        assert re.search(rf"--{option} [^\n]*\({default}\)", section), option


def test_help_comes_without_the_heavy_libraries():
    """TensorFlow, Beam and TFX cost seconds: the commands import them, not the command line."""
    heavy = ("tensorflow", "apache_beam", "tfx", "keras", "grpc")
    code = (
        f"import sys, pipeline.cli, pipeline.config, pipeline.recipes;print([m for m in {heavy} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "[]"
