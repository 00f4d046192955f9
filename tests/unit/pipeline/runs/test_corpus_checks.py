"""What is said of the corpus of an initial model."""

import json

import pytest

from components.corpus_gen.settings import CorpusSettings
from components.task_example_gen.evaluation_sets import with_leak_table
from pipeline.runs.corpus_checks import checked_sets, leak_warning


@pytest.fixture
def data(tmp_path):
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.tsv").write_text(f"sentence\tlabel\nthis is {name}\t1\n")
    return lambda name: str(tmp_path / f"{name}.tsv")


def version(tmp_path, name, lineage):
    """A pushed version with this lineage."""
    extra = tmp_path / name / "assets.extra"
    extra.mkdir(parents=True)
    (extra / "lineage.json").write_text(lineage if isinstance(lineage, str) else json.dumps(lineage))
    return str(tmp_path / name)


def checked(tmp_path, *paths, init=None):
    (table,) = with_leak_table(CorpusSettings(decontaminate=paths), str(tmp_path)).decontaminate
    return checked_sets(table, init)


def test_a_version_that_was_checked_needs_no_warning(tmp_path, data):
    sets = checked(tmp_path, data("dev"), data("test"))
    assert [one["name"] for one in sets] == ["dev.tsv", "test.tsv"] and {*sets[0]} == {"name", "sha256", "unread"}
    init = version(tmp_path, "1", {"decontaminated": sets})
    assert leak_warning(init, {"train": [data("train")], "eval": [data("dev")], "test": [data("test")]}) == ""


def test_rows_that_could_not_be_read_are_named(tmp_path, data):
    with open(data("dev"), "ab") as file:
        file.write(b"caf\xe9\t1\n")
    (checked_set,) = checked(tmp_path, data("dev"))
    splits = {"train": [data("train")], "eval": [data("dev")]}
    line = leak_warning(version(tmp_path, "1", {"decontaminated": [checked_set]}), splits)
    assert checked_set["unread"] == 1 and f"not checked for texts of 1 unreadable row(s) of {data('dev')}, so" in line
    del checked_set["unread"]  # as earlier releases recorded it
    assert leak_warning(version(tmp_path, "2", {"decontaminated": [checked_set]}), splits) == ""


def test_files_that_were_not_checked_are_named(tmp_path, data):
    init = version(tmp_path, "1", {"decontaminated": checked(tmp_path, data("dev"))})
    line = leak_warning(init, {"train": [data("train")], "eval": [data("dev")], "test": [data("test")]})
    assert line.startswith(f"--init {init}: its corpus was not checked for texts of {data('test')}, so scores may be")
    # Rows are held out from the training file.
    line = leak_warning(init, {"train": [data("train")], "test": [data("test")]})
    assert f"texts of {data('train')}, {data('test')}, so" in line and "\n" not in line
    never = version(tmp_path, "2", {"decontaminated": checked_sets("", None)})
    assert f"texts of {data('dev')}, so" in leak_warning(never, {"train": [data("train")], "eval": [data("dev")]})


@pytest.mark.parametrize("lineage", [{"version": "1"}, {"decontaminated": None}, "[]", "{"])
def test_a_version_without_the_record_is_unknown(tmp_path, data, lineage):
    init = version(tmp_path, "1", lineage)
    assert leak_warning(init, {"train": [data("train")], "eval": [data("dev")]}) == (
        f"--init {init}: unknown whether its corpus has texts of {data('dev')} (docs/corpus.md)"
    )


def test_nothing_is_said_of_models_that_were_not_pushed_here(tmp_path, data):
    assert leak_warning(str(tmp_path), {"train": [data("train")]}) == ""


def test_a_continued_model_lacks_only_what_both_corpora_lack(tmp_path, data):
    init = version(tmp_path, "1", {"decontaminated": checked(tmp_path, data("dev"))})
    both = checked(tmp_path, data("dev"), data("test"), init=init)
    assert [one["name"] for one in both] == ["dev.tsv"]
    assert checked(tmp_path, data("dev"), init=str(tmp_path)) is None
    assert checked_sets("", init) == []
