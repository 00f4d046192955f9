"""Files that are written whole or not at all."""

import concurrent.futures
import os
import pwd
from pathlib import Path

import pytest
from etils import epath

from bert_keras import files
from bert_keras.errors import InputError
from bert_keras.files import atomic_open, replacing
from tests.support.stores import gs_in_memory


def test_a_file_is_there_when_it_is_whole(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with atomic_open(str(path)) as file:
        file.write("ü\n".encode())
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == "ü\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_open(str(path)) as file:
        file.write(b"ne")
        file.flush()
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_writer_of_its_own_gets_a_path_with_the_suffix(tmp_path):
    path = tmp_path / "pipeline.yaml"
    with replacing(str(path)) as temporary:
        assert temporary.endswith(".yaml") and not path.exists()
        with open(temporary, "w") as file:
            file.write("a: 1")
    assert path.read_text() == "a: 1"


def test_writers_of_one_file_do_not_collide(tmp_path):
    """Each has a temporary file of its own; an error removes it and leaves what another one wrote."""
    path = str(tmp_path / "new" / "account.json")
    texts = [character * 100_000 for character in "abcdefgh"]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda text: files.atomic_write_anywhere(path, text), texts * 5))
    assert Path(path).read_text() in texts
    with pytest.raises(UnicodeEncodeError):
        files.atomic_write_anywhere(path, "\udc80")
    os.mkdir(tmp_path / "folder")
    with pytest.raises(IsADirectoryError):
        files.atomic_write_anywhere(str(tmp_path / "folder"), b"new")
    assert Path(path).read_text() in texts and files.files_below(str(tmp_path)) == [path]


def test_files_of_a_folder_whatever_its_name_is(tmp_path):
    """`*?[` in a name are no pattern, a linked folder is read, and a missing folder has no files."""
    folder, linked = tmp_path / "a[b]*?", tmp_path / "linked"
    for file in (folder / "one~.txt", folder / "sub" / "two", linked / "three"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("12345")
    (tmp_path / "ab").mkdir()
    (folder / "link").symlink_to(linked)
    here = f"{tmp_path}/./a[b]*?"
    assert files.files_in(here) == [f"{here}/link", f"{here}/one~.txt", f"{here}/sub"]
    assert files.files_below(here) == [f"{here}/link/three", f"{here}/one~.txt", f"{here}/sub/two"]
    assert files.files_in(str(tmp_path / "none")) == []
    assert files.size_of(f"{here}/one~.txt") == 5


def test_a_files_size_needs_no_name_of_the_user(tmp_path, monkeypatch):
    """Containers run with numbers of users that have no name; `epath.Path.stat` fails on their files."""
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    (tmp_path / "file").write_text("12345")
    with pytest.raises(KeyError):
        epath.Path(tmp_path / "file").stat()
    assert files.size_of(str(tmp_path / "file")) == 5


def test_files_of_a_store(monkeypatch):
    """The same on a store's paths, here TensorFlow's file system in memory in the place of gs://."""
    gs_in_memory(monkeypatch)
    epath.Path("gs://bucket/runs/a").mkdir(parents=True, exist_ok=True)
    files.atomic_write_anywhere("gs://bucket/runs/a/one", b"12345")
    files.atomic_write_anywhere("gs://bucket/runs/two", "ü")
    assert files.files_in("gs://bucket/runs") == ["gs://bucket/runs/a", "gs://bucket/runs/two"]
    assert files.files_below("gs://bucket/runs") == ["gs://bucket/runs/a/one", "gs://bucket/runs/two"]
    assert files.size_of("gs://bucket/runs/a/one") == 5 and files.size_of("gs://bucket/runs/two") == 2


def test_an_unknown_store_is_not_a_local_folder():
    files.check_no_pattern("gs://bucket/runs", "give another")
    with pytest.raises(InputError, match=r"^hdfs://runs: the stores are gs://, s3://, az://; give another$"):
        files.check_no_pattern("hdfs://runs", "give another")
