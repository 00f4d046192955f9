"""The list of licences is complete, and true of what is installed here."""

import importlib.util
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


def test_what_is_installed_says_what_is_listed(licences):
    listed, installed = licences.listed(), licences.installed()
    assert len(installed) > 200
    assert {package: text for package, text in installed.items() if listed.get(package) != text} == {}


def test_a_licence_that_asks_for_something_has_a_note(licences):
    page = licences.LIST.read_text()
    noted = {(name, version): licences.note(name, text) for (name, version), text in licences.listed().items()}
    for (name, version), note in noted.items():
        assert f"| {name} | {version} | {licences.listed()[name, version]} | {note} |" in page
    assert {name for (name, _), note in noted.items() if note} == set(licences.NOTES)
