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
    locked, listed = licences.locked_everywhere(), licences.listed()
    assert len(locked) > 300
    assert sorted(locked - listed.keys()) == [], "make licences, and ci/debian13.sh make licences"
    assert sorted(listed.keys() - locked) == []


def test_what_is_installed_says_what_is_listed(licences):
    listed = licences.listed()
    installed = licences.installed()
    assert len(installed) > 200
    assert {name: text for name, text in installed.items() if listed.get(name) != text} == {}


def test_a_licence_that_asks_for_something_has_a_note(licences):
    page = licences.LIST.read_text()
    asking = [name for name, text in licences.listed().items() if licences.asks_for_a_note(name, text)]
    assert {"certifi", "namex"} <= set(asking)
    for name in asking:
        assert f"| {name} | {licences.listed()[name]} | {licences.NOTES[name]} |" in page
    assert set(licences.NOTES) <= set(asking)
