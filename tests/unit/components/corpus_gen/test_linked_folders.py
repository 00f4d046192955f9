"""Folders of text that are links: left out and counted unless they are named."""

import pytest

from bert_keras.errors import InputError
from components.corpus_gen.inputs import find_inputs
from components.corpus_gen.settings import CorpusSettings


def paths(pattern):
    return [file.path for file in find_inputs([str(pattern)], CorpusSettings())]


@pytest.fixture
def folders(tmp_path):
    """The folder `text` has a file, a linked file and a linked folder; `only` has a linked folder."""
    for name in ("there", "text", "text/.hidden", "only"):
        (tmp_path / name).mkdir()
    for name in ("there/a.txt", "text/b.txt"):
        (tmp_path / name).write_text("A sentence of text.\n")
    for name in ("text/linked", "text/.hidden/linked", "only/linked"):
        (tmp_path / name).symlink_to(tmp_path / "there")
    (tmp_path / "text/one.txt").symlink_to(tmp_path / "there/a.txt")
    return tmp_path


def test_they_are_left_out_and_counted(folders, capsys):
    assert paths(folders / "text") == [f"{folders}/text/b.txt", f"{folders}/text/one.txt"]
    told = f"{folders}/text: left out 1 linked folder(s); --corpus {folders}/text/linked reads the first one"
    assert told in capsys.readouterr().err
    with pytest.raises(
        InputError, match=r"only: has only 1 linked folder\(s\); --corpus .*only/linked reads the first"
    ):
        paths(folders / "only")


def test_what_is_named_is_read(folders, capsys):
    assert paths(folders / "text/linked") == [f"{folders}/text/linked/a.txt"]
    assert paths(folders / "text/*.txt") == [f"{folders}/text/b.txt", f"{folders}/text/one.txt"]
    assert not capsys.readouterr().err
