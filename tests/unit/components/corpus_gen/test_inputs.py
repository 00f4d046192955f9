"""The user's files: found, or refused in one line that names the file and the remedy."""

import gzip
import os

import pytest
from apache_beam.io.filesystems import FileSystems

from bert_keras.errors import InputError
from components.corpus_gen import inputs
from components.corpus_gen.inputs import fingerprint
from components.corpus_gen.readers import SNIFFED_BYTES
from components.corpus_gen.settings import CorpusSettings

TEXT = b"A sentence of text.\n"


def write(path, content=TEXT):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def find_inputs(patterns):
    return inputs.find_inputs(patterns, CorpusSettings())


def paths(*patterns):
    return [file.path for file in find_inputs(patterns)]


def refusal(*patterns):
    """The message that refuses `patterns`; it is one line."""
    with pytest.raises(InputError) as caught:
        find_inputs(patterns)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_a_folder_and_a_glob(tmp_path):
    first, second = write(tmp_path / "text/b.txt"), write(tmp_path / "text/deep/er/a.txt")
    third = write(tmp_path / "text/c.md")
    assert paths(first) == [first]
    assert paths(str(tmp_path / "text")) == [first, third, second]
    assert paths(f"{tmp_path}/text/") == [first, third, second]
    assert paths(f"{tmp_path}/text/*.txt") == [first]
    assert paths(f"{tmp_path}/text/**.txt") == [first, second]


def test_files_come_once_sorted_and_with_their_sizes(tmp_path):
    first, second = write(tmp_path / "b.txt", b"12345"), write(tmp_path / "a.txt", b"123")
    found = find_inputs([first, str(tmp_path / "*.txt"), second])
    assert [(file.path, file.size) for file in found] == [(second, 3), (first, 5)]


@pytest.mark.parametrize("name", ["with blanks in it", "question?", "brackets[1]", "[!a]*", "日本語"])
def test_a_name_means_itself_whatever_its_characters(tmp_path, name):
    file, inner = write(tmp_path / f"{name}.txt"), write(tmp_path / name / "x y.txt")
    assert paths(file) == [file]
    assert paths(str(tmp_path / name)) == [inner]


def test_a_glob_with_blanks(tmp_path):
    inner = write(tmp_path / "two words/a b.txt")
    write(tmp_path / "two words/ab.txt")
    assert paths(f"{tmp_path}/two */a *.txt") == [inner]


@pytest.mark.parametrize("name", ["missing.txt", "missing/", "*.missing", "empty_folder"])
def test_a_pattern_without_files(tmp_path, name):
    (tmp_path / "empty_folder").mkdir()
    message = refusal(write(tmp_path / "there.txt"), f"{tmp_path}/{name}")
    assert message.startswith(f"{tmp_path}/{name}: no such file; --corpus takes")


@pytest.mark.parametrize("pattern", ["", "/"])
def test_nothing_does_not_mean_the_whole_machine(monkeypatch, pattern):
    monkeypatch.setattr(FileSystems, "match", lambda patterns: pytest.fail(f"looked for {patterns}"))
    assert "no such file" in refusal(pattern)


def test_an_unknown_scheme():
    message = refusal("nosuchscheme://bucket/x.txt")
    assert message.startswith("nosuchscheme://bucket/x.txt: ") and "dependency" in message


@pytest.mark.parametrize(
    "blank",
    [b"", b" \n\t\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n", "\u00a0\u3000\u2003\n".encode()],
    ids=["empty", "blanks", "byte order mark", "mark and blank", "Unicode blanks"],
)
def test_a_corpus_without_text(tmp_path, blank):
    first, second = write(tmp_path / "1.txt", blank), write(tmp_path / "2.txt", blank)
    assert refusal(first, second) == (f"{first}, {second}: no text in 2 file(s), only blanks; give files with text")
    # Blank files among others do no harm.
    assert len(paths(first, write(tmp_path / "3.txt"))) == 2


def test_text_after_many_blanks(tmp_path):
    path = write(tmp_path / "late.txt", b"\n" * (3 * SNIFFED_BYTES) + b"text")
    assert paths(path) == [path]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (bytes(range(256)) + bytes(9), "NUL bytes"),
        ("A sentence.".encode("utf-16"), "UTF-16, by its byte order mark"),
        ("A sentence.".encode("utf-16-le"), "NUL bytes"),
        (bytes(range(1, 256)) * 4, "not UTF-8"),
        ("Die schöne Müllerin möchte über die Brücke gehen, aber nicht heute. ".encode("latin-1") * 30, "not UTF-8"),
        ("Это предложение. ".encode("cp1251") * 30, "not UTF-8"),
    ],
    ids=["binary", "UTF-16", "UTF-16 without mark", "binary without NUL", "Latin-1", "Windows-1251"],
)
def test_what_is_no_utf8_text(tmp_path, content, problem):
    path = write(tmp_path / "odd.txt", content)
    message = refusal(write(tmp_path / "good.txt"), path)
    assert message.startswith(f"{path}: is ") and problem in message and ("give" in message or "convert" in message)


@pytest.mark.parametrize(
    "content",
    [
        b"A good line.\n" * 40 + b"one bad byte \xff here",
        b"caf\xe9",
        ("é" * SNIFFED_BYTES).encode()[:-1],
        b"a" * (SNIFFED_BYTES - 1) + "é".encode(),
        "Already replaced: \ufffd\ufffd\ufffd".encode(),
        "\ufeffA byte order mark.\r\n".encode(),
    ],
    ids=["a bad byte", "in a short text", "all accents, cut", "character across the head's end", "U+FFFD", "mark"],
)
def test_a_little_damage_is_borne(tmp_path, content):
    path = write(tmp_path / "good.txt", content)
    assert paths(path) == [path]


def test_a_link_to_nothing(tmp_path):
    path = tmp_path / "link.txt"
    path.symlink_to(tmp_path / "gone.txt")
    assert refusal(str(path)).startswith(f"{path}: no such file")


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = write(tmp_path / "secret.txt")

    def denied(path, **_):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(FileSystems, "open", denied)
    assert refusal(path) == f"{path}: cannot be read (Permission denied); give a readable, whole file"


def test_gz(tmp_path):
    whole = gzip.compress(TEXT) + gzip.compress(TEXT)
    path = write(tmp_path / "two members.txt.gz", whole)
    assert paths(path) == [path]
    assert "no text" in refusal(write(tmp_path / "blank.gz", gzip.compress(b"\n\n")))
    assert "NUL" in refusal(write(tmp_path / "binary.gz", gzip.compress(bytes(100))))


def test_damaged_gz(tmp_path):
    compressed = gzip.compress(os.urandom(500).hex().encode())
    flipped = bytearray(compressed)
    flipped[60] ^= 0xFF
    for name, content in {"cut": compressed[:-20], "flipped": bytes(flipped)}.items():
        path = write(tmp_path / f"{name}.gz", content)
        assert refusal(path).startswith(f"{path}: cannot be read ("), name


def test_what_a_file_is_its_content_says(tmp_path):
    path = write(tmp_path / "plain.gz")
    assert paths(path) == [path]


def test_the_fingerprint_changes_with_content_and_name_alone(tmp_path):
    path, other = write(tmp_path / "a.txt", b"one"), write(tmp_path / "b.txt", b"two")
    before = fingerprint(find_inputs([path, other]))
    os.utime(path, (1, 1))
    assert fingerprint(find_inputs([other, path])) == before
    assert fingerprint(find_inputs([path])) != before
    # The name is the documents' `source`.
    os.rename(other, tmp_path / "c.txt")
    assert fingerprint(find_inputs([str(tmp_path)])) != before
    os.rename(tmp_path / "c.txt", other)
    assert fingerprint(find_inputs([str(tmp_path)])) == before
    write(tmp_path / "b.txt", b"TWO")
    assert fingerprint(find_inputs([path, other])) != before
