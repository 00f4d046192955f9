"""Files that are written whole or not at all."""

import pytest

from bert_keras.files import atomic_write, replacing


def test_a_file_is_there_when_it_is_whole(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with atomic_write(str(path)) as file:
        file.write("ü\n")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == "ü\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(str(path)) as file:
        file.write("ne")
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
