"""The list of licences is complete and equals that of the installed packages; the package states its own."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def licences():
    spec = importlib.util.spec_from_file_location("licences", ROOT / "scripts/licences.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_locked_package_is_listed_and_no_other(licences):
    locked, listed = licences.locked(), licences.listed()
    assert len(locked) > 300
    assert sorted(locked - listed.keys()) == [], "docs/platforms.md: make licences"
    assert sorted(listed.keys() - locked) == []


def test_installed_packages_state_the_listed_licence(licences):
    listed, installed = licences.listed(), licences.installed()
    assert len(installed) > 200
    assert {package: text for package, text in installed.items() if listed.get(package) != text} == {}


def test_licences_with_obligations_have_a_note(licences):
    page = licences.LIST.read_text()
    noted = {(name, version): licences.note(name, text) for (name, version), text in licences.listed().items()}
    for (name, version), note in noted.items():
        assert f"| {name} | {version} | {licences.listed()[name, version]} | {note} |" in page
    noted_names = {name for (name, _), note in noted.items() if note and not name.startswith("nvidia-")}
    assert noted_names == set(licences.NOTES)


def test_the_package_states_its_licence_and_holds_the_text(tmp_path):
    """In the core metadata of PEP 639, without a warning of setuptools."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools import build_meta as b; print(b.prepare_metadata_for_build_wheel('..'))"
    words = [sys.executable, "-c", f"import warnings; warnings.simplefilter('error'); {build}"]
    made = subprocess.run(words, cwd=source, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-500:]
    folder = tmp_path / made.stdout.splitlines()[-1]
    metadata = (folder / "METADATA").read_text().splitlines()
    assert "License-Expression: Apache-2.0" in metadata and "License-File: LICENSE" in metadata
    text = (folder / "licenses/LICENSE").read_bytes()
    # The text of https://www.apache.org/licenses/LICENSE-2.0.txt
    assert hashlib.sha256(text).hexdigest() == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
