"""`make audit` distinguishes vulnerable packages from packages that were not checked."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("said", "status", "result", "words"),
    [
        ("No known vulnerabilities found", 0, 0, ""),
        ("Found 2 known vulnerabilities in 1 package", 1, 1, "Found 2 known"),
        ("ERROR:pip_audit._cli:dill: Dependency not found on PyPI and could not be audited: dill (0.4)", 1, 2, "py311"),
        ("requests.exceptions.ConnectionError: nobody there", 1, 2, "was not audited"),
    ],
)
def test_exit_codes_of_the_audit(tmp_path, said, status, result, words):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/audit.sh", tmp_path / "scripts")
    uv = tmp_path / ".uv/bin/uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(f"#!/bin/sh\necho \"$@\" >> asked\necho '{said}' >&2\nexit {status}\n")
    uv.chmod(0o755)
    ended = subprocess.run([tmp_path / "scripts/audit.sh"], capture_output=True, text=True)
    assert ended.returncode == result
    assert words in ended.stderr
    asked = (tmp_path / "asked").read_text()
    assert "--strict" in asked  # without it, packages that could not be checked pass
    if result < 2:
        assert all(f"requirements/py{minor}.txt" in asked for minor in (311, 312, 313))
