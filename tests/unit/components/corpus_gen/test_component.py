"""CorpusGen in TFX, and the patterns of its input files."""

import json
import os

import pytest
from pydantic import TypeAdapter
from tfx.dsl.components.base import base_beam_executor
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import decode_split_names

from bert_keras.errors import InputError
from components.corpus_gen.component import CorpusGen, Executor
from components.corpus_gen.inputs import InputList, find_inputs
from components.corpus_gen.record.card import CARD_FILE, COUNTS_FILE
from components.corpus_gen.settings import CleaningSettings, CorpusSettings
from components.corpus_gen.transforms import READ_FILE
from pipeline.runners.run_steps import BEAM_PIPELINE_ARGS


def test_documents_depend_only_on_the_properties(tmp_path):
    (tmp_path / "a.txt").write_text("One.")

    def properties(settings):
        inputs = InputList.write(find_inputs([f"{tmp_path}/a.txt"], settings), f"{tmp_path}/lists")
        return CorpusGen(None, inputs.path, inputs.fingerprint, settings).spec.exec_properties

    before = properties(CorpusSettings())
    with open(before["inputs"]) as file:
        assert json.load(file) == {f"{tmp_path}/a.txt": 4}
    assert TypeAdapter(CorpusSettings).validate_json(before["settings"]) == CorpusSettings()
    assert properties(CorpusSettings()) == before
    assert properties(CorpusSettings(segments="lines")) != before
    assert properties(CorpusSettings(cleaning=CleaningSettings(near_duplicates=True))) != before
    (tmp_path / "a.txt").write_text("Two.")
    assert properties(CorpusSettings()) != before


def test_the_executor(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(f"Document {i}. Twice." for i in range(50)) + "\n\nDocument 7. Twice.")
    settings = CorpusSettings(eval_fraction=0.3)
    inputs = InputList.write(find_inputs([f"{tmp_path}/a.txt"], settings), f"{tmp_path}/lists")
    component = CorpusGen(None, inputs.path, inputs.fingerprint, settings)
    documents = standard_artifacts.Examples()
    documents.uri = str(tmp_path / "documents")
    context = base_beam_executor.BaseBeamExecutor.Context(beam_pipeline_args=list(BEAM_PIPELINE_ARGS))
    Executor(context).Do({}, {"documents": [documents]}, component.spec.exec_properties)
    assert decode_split_names(documents.split_names) == ["train", "eval"]
    for split in ("train", "eval"):
        assert [p.name for p in (tmp_path / f"documents/Split-{split}").iterdir()] == [
            "documents-00000-of-00001.tfrecord"
        ]
    assert sorted(p.name for p in (tmp_path / "documents").iterdir()) == [
        "Split-eval",
        "Split-train",
        COUNTS_FILE,
        CARD_FILE,
        READ_FILE,
    ]
    counts = json.loads((tmp_path / "documents" / COUNTS_FILE).read_text())
    assert counts["read"] == {"read_bytes": (tmp_path / "a.txt").stat().st_size, "read_documents": 51}
    total = {name: counts["train"][name] + counts["eval"][name] for name in counts["train"]}
    # "Document 0.", ..., "Document 9." have 11 characters, 40 others 12, "Twice." 6.
    size = 10 * 11 + 40 * 12 + 50 * 6
    assert total == {"documents": 50, "duplicates": 1, "near_duplicates": 0, "segments": 100, "bytes": size}
    assert counts["eval"]["documents"] > 0
    later = standard_artifacts.Examples()
    later.uri = str(tmp_path / "later")
    Executor(context).Do({"earlier": [documents]}, {"documents": [later]}, component.spec.exec_properties)
    counts = json.loads((tmp_path / "later" / COUNTS_FILE).read_text())
    assert counts["read"]["read_before"] == 51 and counts["train"]["documents"] == counts["eval"]["documents"] == 0


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
