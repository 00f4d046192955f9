"""Set-up chooses a Python that TFX has wheels for; without one it prints a remedy and changes nothing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV_VERSION = re.search(r"^UV_VERSION=(.*)$", (ROOT / "scripts/setup.sh").read_text(), re.MULTILINE)[1]


def program(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def fake_python(path, version, glibc):
    """A Python that reports `version`, on a machine with another glibc."""
    said = f"import os, sys; sys.version_info = {version}; os.confstr = lambda _: 'glibc {glibc}'"
    return program(path, f'exec "{sys.executable}" -c "{said}; exec(sys.stdin.read())"')


@pytest.fixture
def checkout(tmp_path):
    """The files that set-up reads, in a folder of its own, with a uv that only prints its arguments."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "requirements", root / "requirements")
    (root / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/setup.sh", root / "scripts")
    shutil.copy(ROOT / "pyproject.toml", root)
    program(root / ".uv/bin/uv", f'if [ "$1" = --version ]; then echo "uv {UV_VERSION}"; else echo "$@" >> uv.log; fi')
    program(root / "scripts/tensorflow_messages.sh", 'echo "messages of $1" >> uv.log')
    (root / ".venv").mkdir()
    return root


def set_up(checkout, python, *arguments):
    return subprocess.run(
        [checkout / "scripts/setup.sh", *arguments],
        env={**os.environ, "BERT_TFX_PYTHON": str(python)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "body",
    [
        "exit 127",  # a pyenv shim that refuses
        "cat > /dev/null",  # runs and prints nothing: not a Python
    ],
)
def test_no_usable_python_is_one_line_with_a_remedy(checkout, tmp_path, body):
    shim = program(tmp_path / "python", body)
    result = set_up(checkout, shim)
    assert result.returncode == 1
    for word in ("no usable Python found", str(shim), "Python 3.11", "apt-get install python3 python3-venv", "pyenv"):
        assert word in result.stderr
    assert not (checkout / "uv.log").exists()


@pytest.mark.parametrize("glibc", ["2.31", "2.36", "2.38"])
@pytest.mark.parametrize("minor", [12, 13])
def test_the_wrong_pair_is_refused_in_one_line(checkout, tmp_path, minor, glibc):
    python = fake_python(tmp_path / "python", (3, minor, 1), glibc)
    result = set_up(checkout, python)
    assert result.returncode == 1
    assert result.stderr == (
        f"bert-tfx: {python}: Python 3.{minor} needs glibc 2.39 (TFX 1.21's wheels), and here it is {glibc}; "
        "install Python 3.11, with venv, or name one: BERT_TFX_PYTHON=python3.11\n"
    )
    assert result.stdout == ""
    assert not (checkout / "uv.log").exists()


@pytest.mark.parametrize(
    ("version", "glibc", "arguments", "lock"),
    [
        ((3, 11, 2), "2.36", [], "py311.txt"),
        ((3, 11, 2), "2.41", [], "py311.txt"),
        ((3, 12, 3), "2.39", [], "py312.txt"),
        ((3, 13, 5), "2.41", [], "py313.txt"),
        ((3, 13, 5), "2.41", ["image"], "py313-image.txt"),
        ((3, 13, 5), "2.41", ["serve"], "py313-serve.txt"),
    ],
)
def test_the_right_pair_gets_its_lock(checkout, tmp_path, version, glibc, arguments, lock):
    result = set_up(checkout, fake_python(tmp_path / "python", version, glibc), *arguments)
    assert result.returncode == 0, result.stderr
    log = (checkout / "uv.log").read_text()
    assert f"pip sync --quiet --require-hashes requirements/{lock}\n" in log
    assert ("messages of requirements/py313.txt" in log) == (arguments == ["serve"])
    # A second call has nothing to do.
    (checkout / "uv.log").unlink()
    assert set_up(checkout, tmp_path / "python", *arguments).stdout == ""
    assert not (checkout / "uv.log").exists()


@pytest.mark.parametrize(("changed", "cleared"), [("pyproject.toml", False), ("requirements/py313.txt", True)])
def test_only_another_lock_clears_the_environment(checkout, tmp_path, changed, cleared):
    python = fake_python(tmp_path / "python", (3, 13, 5), "2.41")
    assert set_up(checkout, python).returncode == 0
    (checkout / "uv.log").unlink()
    with (checkout / changed).open("a") as file:
        file.write("# changed\n")
    assert set_up(checkout, python).returncode == 0
    log = (checkout / "uv.log").read_text()
    assert ("venv --quiet --clear" in log, "pip sync" in log) == (cleared, cleared)
    assert "pip install --quiet --no-deps --no-build-isolation --editable ." in log
    assert set_up(checkout, python).stdout == ""
