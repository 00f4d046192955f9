"""Patterns: relative ones, hidden files, names that are not UTF-8."""

import os

import pytest

from bert_keras.errors import InputError
from components.corpus_gen.inputs import find_inputs
from components.corpus_gen.settings import CorpusSettings


def write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"A sentence of text.\n")


def paths(pattern):
    return [file.path for file in find_inputs([pattern], CorpusSettings())]


def refusal(pattern):
    with pytest.raises(InputError) as caught:
        paths(pattern)
    return str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.txt", ["a.txt"]),
        ("b[x]", ["b[x]/a.txt"]),
        ("b*/a.txt", ["b[x]/a.txt", "bx/a.txt"]),
        ("b?/a.txt", ["bx/a.txt"]),
        ("**.txt", ["a.txt", "b[x]/a.txt", "bx/a.txt"]),
        ("web=*.txt", ["a.txt"]),
        ("./*.txt", ["./a.txt"]),
        ("../*/*.txt", ["../here/a.txt"]),
    ],
)
def test_relative_patterns(tmp_path, monkeypatch, pattern, names):
    for name in ("a.txt", "b[x]/a.txt", "bx/a.txt"):
        write(tmp_path / "here" / name)
    monkeypatch.chdir(tmp_path / "here")
    assert paths(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "names", "hidden"),
    [
        ("*", ["a.txt"], 2),
        ("**", ["a.txt"], 4),
        (".", ["./a.txt"], 4),
        (".*", [".DS_Store", "._a.txt"], 0),
        ("*/*.txt", [".ipynb_checkpoints/a.txt"], 1),
        (".git", [".git/.x/b.txt"], 1),
        (".git/.x", [".git/.x/b.txt"], 0),
        (".DS_Store", [".DS_Store"], 0),
    ],
)
def test_hidden_files_are_left_out_and_counted_unless_they_are_named(
    tmp_path, monkeypatch, capsys, pattern, names, hidden
):
    for name in ("a.txt", "._a.txt", ".DS_Store", ".ipynb_checkpoints/a.txt", ".git/.x/b.txt"):
        write(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    if pattern in ("*/*.txt", ".git"):  # hidden files alone
        assert f"has only {hidden} hidden file(s)" in refusal(pattern) and names[0] in refusal(pattern)
        return
    assert paths(pattern) == names
    assert (f"left out {hidden} hidden file(s)" in capsys.readouterr().err) == bool(hidden)


def test_a_name_that_is_not_utf8(tmp_path):
    write(tmp_path / "b.txt")
    write(tmp_path / os.fsdecode(b"caf\xe9.txt"))
    assert refusal(str(tmp_path)).endswith("/caf\\xe9.txt': its name is not UTF-8; rename the file")
