import hashlib
import json

import pytest

from bert_keras.errors import InputError
from components.corpus_gen.inputs import find_inputs
from components.corpus_gen.record.licences import licence_files, licences_of
from components.corpus_gen.settings import CorpusSettings
from tests.support.examples.made_documents import make_documents


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_licence_files_have_their_names():
    names = ["a/LICENSE", "Licence.txt", "copying.LESSER", "license-mit", "a/my_license", "LICENSE/a.txt", "text.txt"]
    assert licence_files(names) == ["a/LICENSE", "Licence.txt", "copying.LESSER", "license-mit"]


def test_those_in_the_folder_of_a_source_are_named_with_their_hash(tmp_path):
    write(
        tmp_path,
        {
            "w[i]ki/LICENSE": "one",
            "w[i]ki/copying.txt": "two",
            "w[i]ki/A/LICENSE": "further down",
            "LICENSE": "further up",
            "news/Licence": "three",
            "news/LICENSES/MIT": "a folder",
            "news/licensed_text.txt": "x" * 2_000_000,
            "plain/a.txt": "",
        },
    )
    files = [("wiki", "w[i]ki/A/1"), ("news", "news/a.txt"), ("wiki", "w[i]ki/B/2"), ("plain", "plain/a.txt")]
    found = licences_of((source, f"{tmp_path}/{path}") for source, path in files)
    assert found == [
        {"source": source, "file": name, "sha256": hashlib.sha256(text.encode()).hexdigest()}
        for source, name, text in (
            ("news", "Licence", "three"),
            ("wiki", "LICENSE", "one"),
            ("wiki", "copying.txt", "two"),
        )
    ]


def test_paths_may_be_relative(tmp_path, monkeypatch):
    write(tmp_path, {"LICENSE": "one", "a.txt": ""})
    monkeypatch.chdir(tmp_path)
    assert [one["file"] for one in licences_of([("", "a.txt")])] == ["LICENSE"]


def test_an_unreadable_one_is_named(tmp_path, monkeypatch):
    write(tmp_path, {"LICENSE": "one"})

    def refused(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("components.corpus_gen.record.licences.open_file", refused)
    with pytest.raises(InputError, match=r"LICENSE: cannot be read .Permission denied"):
        licences_of([("", f"{tmp_path}/a.txt")])


def test_the_record_of_a_corpus_names_them(tmp_path):
    write(tmp_path, {"wiki/a.txt": "One document.\n", "wiki/LICENSE": "one", "news/a.txt": "Another.\n"})
    settings = CorpusSettings()
    files = find_inputs([f"wiki={tmp_path}/wiki/*.txt", f"news={tmp_path}/news/"], settings)
    make_documents(
        [file.path for file in files], tmp_path / "out", settings, names=[file.source_name for file in files]
    )
    licence = {"source": "wiki", "file": "LICENSE", "sha256": hashlib.sha256(b"one").hexdigest()}
    assert json.loads((tmp_path / "out/corpus.json").read_text())["licences"] == [licence]
    assert f"| wiki | LICENSE | {licence['sha256']} |" in (tmp_path / "out/corpus_card.md").read_text()
