"""The documents are true: commands parse, files exist, docs/cli.md equals the help."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from bert_keras.models.config import BertConfig
from pipeline.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    p
    for p in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("components/*.md"),
        *ROOT.glob("benchmarks/**/*.md"),
    ]
)
PACKAGES = ("bert_keras", "components", "pipeline", "serving")
FENCED = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(program, page="README.md"):
    """Every command of a page that starts with a program, as words."""
    lines = "\n".join(FENCED.findall((ROOT / page).read_text())).splitlines()
    words = [shlex.split(line.partition(" < ")[0], comments=True) for line in lines]
    return [w for w in words if w and Path(w[0]).name == program]


def test_the_readme_has_its_two_commands_first():
    first = FENCED.search((ROOT / "README.md").read_text())[1]
    assert [line.split("#")[0].strip() for line in first.strip().splitlines()] == ["make demo", "make test"]


WITH_COMMANDS = ("README.md", "docs/training.md", "docs/gpus.md")


@pytest.mark.parametrize("words", [w for page in WITH_COMMANDS for w in commands("bert-tfx", page)], ids=" ".join)
def test_commands_of_the_pages_parse(words):
    from pipeline.recipes.pretraining import RECIPES
    from pipeline.recipes.settings import with_settings

    group = typer.main.get_command(app)
    command = group.commands[words[1]]
    context = command.make_context(words[1], words[2:])  # raises on an unknown option or a missing argument
    if context.params.get("recipe"):
        with_settings(RECIPES[context.params["recipe"]](), context.params["settings"] or [])


def test_make_commands_of_the_readme_are_targets():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {words[1] for words in commands("make")}
    assert wanted >= {"demo", "test"}
    assert wanted <= targets


def test_pictures_of_the_readme_are_there_and_small():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert "docs/dataflow.svg" in pictures
    for picture in map(ROOT.joinpath, pictures):
        assert picture.stat().st_size < 200_000
        assert picture.suffix == ".png" or "prefers-color-scheme: dark" in picture.read_text()


@pytest.fixture(scope="module")
def messages():
    """The string literals of the product; "\0" stands for a placeholder of an f-string."""

    def text(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        return "".join(text(part) or "\0" for part in node.values) if isinstance(node, ast.JoinedStr) else None

    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())))
    return list(dict.fromkeys(found for node in nodes if (found := text(node))))


def symptoms():
    """The messages quoted in docs/trouble.md; those of other programs are in fences of another kind."""
    fences = re.findall(r"^```text\n(.*?)^```", (ROOT / "docs/trouble.md").read_text(), re.MULTILINE | re.DOTALL)
    return "\n".join(fences).split("\n")


@pytest.mark.parametrize("symptom", [line for line in symptoms() if line])
def test_the_page_of_trouble_quotes_messages_of_the_code(symptom, messages):
    pattern = re.compile(".*".join(map(re.escape, symptom.split("..."))), re.DOTALL)
    assert any(pattern.search(message) for message in messages), "no message reads so: say what is printed now"


def test_the_page_of_trouble_quotes_many():
    assert len(symptoms()) > 40


def anchors(page):
    """Anchors of a page: its headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, _, anchor in re.findall(r"\]\(([^)#\s]*)(#([^)]+))?\)", page.read_text()):
        if "://" in target:
            continue
        linked = page.parent / target if target else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"


def test_the_page_of_the_command_line_equals_the_help():
    generate = [str(Path(sys.executable).with_name("typer")), "pipeline.cli", "utils", "docs", "--name", "bert-tfx"]
    page = subprocess.run(generate, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert page.strip() == (ROOT / "docs" / "cli.md").read_text().strip(), "make docs writes it again"


def test_the_help_of_examples_has_the_default_size_of_a_vocabulary():
    page = (ROOT / "docs" / "cli.md").read_text()
    section = page[page.index("## `bert-tfx examples`") : page.index("## `bert-tfx tokenize`")]
    assert re.search(rf"--vocab-size [^\n]*\({BertConfig.vocab_size}, or the recipe", section)


def test_help_comes_without_the_heavy_libraries():
    """Importing TensorFlow, Beam and TFX takes seconds, so only commands import them."""
    heavy = ("tensorflow", "apache_beam", "tfx", "keras", "grpc")
    modules = "sys, pipeline.cli, pipeline.recipes.settings, pipeline.recipes.pretraining"
    code = f"import {modules}; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "[]"
