"""Finding the user's files; errors are one line with the file and the remedy."""

import datetime
import gzip
import os
import threading

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from bert_keras.errors import InputError
from components.corpus_gen import inputs
from components.corpus_gen.inputs import InputFile, InputList, fingerprint, read_input_list
from components.corpus_gen.readers import SNIFFED_BYTES
from components.corpus_gen.settings import CorpusSettings
from tests.support.examples.object_stores import SCHEMES, ClientError, in_memory

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
    """One-line message of the error for `patterns`."""
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
def test_an_existing_name_is_taken_literally(tmp_path, name):
    file, inner = write(tmp_path / f"{name}.txt"), write(tmp_path / name / "x y.txt")
    assert paths(file) == [file]
    assert paths(str(tmp_path / name)) == [inner]


def test_a_glob_with_blanks(tmp_path):
    inner = write(tmp_path / "two words/a b.txt")
    write(tmp_path / "two words/ab.txt")
    assert paths(f"{tmp_path}/two */a *.txt") == [inner]


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


@pytest.mark.parametrize("name", ["missing.txt", "missing/", "*.missing", "empty_folder", "dangling_link"])
def test_a_pattern_without_files(tmp_path, name):
    (tmp_path / "empty_folder").mkdir()
    (tmp_path / "dangling_link").symlink_to(tmp_path / "gone.txt")
    message = refusal(write(tmp_path / "there.txt"), f"{tmp_path}/{name}")
    assert message.startswith(f"{tmp_path}/{name}: no such file; --corpus takes")


@pytest.mark.parametrize("pattern", ["", "/"])
def test_an_empty_pattern_is_refused(monkeypatch, pattern):
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
    # Blank files among others are allowed.
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
def test_content_other_than_utf8_text_is_refused(tmp_path, content, problem):
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
def test_a_few_invalid_bytes_are_allowed(tmp_path, content):
    path = write(tmp_path / "good.txt", content)
    assert paths(path) == [path]


def test_an_unreadable_file(tmp_path, monkeypatch):
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


def test_the_fingerprint_depends_only_on_content_and_name(tmp_path):
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


def test_the_fingerprint_covers_every_byte_of_a_large_file(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "HASHED_BYTES", 1000)
    content = os.urandom(4500)
    path = write(tmp_path / "a.txt", content)

    def of(content):
        write(tmp_path / "a.txt", content)
        return fingerprint([InputFile(path, len(content))])

    before, threads = of(content), threading.active_count()
    changed = {of(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :]) for i in (0, 999, 1000, 2500, 4499)}
    # Swapped chunks, and one more that is empty.
    changed |= {of(content[1000:2000] + content[:1000] + content[2000:]), of(content[:4000]), of(content + b"x")}
    assert len(changed) == 8 and before not in changed
    assert of(content) == before and threading.active_count() <= threads


LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(params=SCHEMES)
def store(request, monkeypatch):
    FileSystems.set_options(PipelineOptions([]))
    monkeypatch.setattr(inputs, "SETTLING_SECONDS", 0.01)
    monkeypatch.setattr(inputs, "CHECKED_FILES", 100)
    store = in_memory(monkeypatch, request.param)
    for number in range(2500):
        store.write(f"{request.param}://bucket/text/{number:05d}.txt", TEXT, LONG_AGO)
    return store


def test_files_in_a_store_are_listed_in_pages(store):
    found = find_inputs([f"{store.scheme}://bucket/text"])
    assert [file.path[-9:] for file in found] == [f"{number:05d}.txt" for number in range(2500)]
    # Pages of a thousand; and a check whether the folder is an object itself. The heads of a hundred files are read.
    assert store.requests["list"] == 3 and store.requests["exists"] <= 1
    assert store.requests["read"] <= 3 * 100
    asked = dict(store.requests)
    assert fingerprint(found) == fingerprint(found) and dict(store.requests) == asked


def test_other_content_in_a_store_has_another_fingerprint(store):
    folder = f"{store.scheme}://bucket/text"
    before = fingerprint(find_inputs([folder]))
    assert fingerprint(find_inputs([folder])) == before
    # The same size, a second later.
    store.write(f"{folder}/01234.txt", TEXT.upper(), LONG_AGO + datetime.timedelta(seconds=1))
    assert fingerprint(find_inputs([folder])) != before


def test_objects_written_within_the_second_of_the_listing_are_listed_again(store, monkeypatch):
    """S3's times are whole seconds: within the second, two contents could have the same time."""
    monkeypatch.setattr(inputs.time, "time", lambda: now.timestamp() + 0.5)
    now, path = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), f"{store.scheme}://bucket/text/b.txt"
    store.write(path, TEXT, now)

    def written_meanwhile(seconds):
        assert seconds == inputs.SETTLING_SECONDS
        store.write(path, TEXT * 2, now)

    monkeypatch.setattr(inputs.time, "sleep", written_meanwhile)
    (file,) = find_inputs([path])
    assert file.size == 2 * len(TEXT)


def test_errors_of_a_store_are_reported(store):
    def refuse(request, name):
        raise ClientError(403, "no credentials")

    store.alive = refuse
    path = f"{store.scheme}://bucket/text"
    message = refusal(path)
    assert message.startswith(f"{path}: cannot be listed (") and "no credentials" in message


def test_a_sample_of_many_files_is_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "CHECKED_FILES", 3)
    monkeypatch.setattr(inputs, "read_unit", lambda unit, *_: opened.append(unit.path) or iter([None]))
    files, opened = [write(tmp_path / f"{i}.txt") for i in range(8)], []
    assert paths(str(tmp_path)) == files
    assert sorted(opened) == files[::3]


def test_names_before_patterns_are_sources(tmp_path):
    web, books, law = (write(tmp_path / f"{name}.txt", TEXT) for name in ("web", "books", "law"))
    found = find_inputs([f"web={web}", f"books={tmp_path}/b*.txt", f"web={law}"])
    assert [(file.path, file.source_name) for file in found] == [(books, "books"), (law, "web"), (web, "web")]
    path = InputList.write(found, f"{tmp_path}/lists").path
    assert read_input_list(path) == found
    assert len({fingerprint(find_inputs(p)) for p in ([web], [f"web={web}"], [f"law={web}"])}) == 3


def test_an_existing_path_is_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("year=2020")
    write(tmp_path / "year=2020" / "a.txt", TEXT)
    assert [(file.path, file.source_name) for file in find_inputs(["year=2020"])] == [("year=2020/a.txt", "")]
    assert [(file.path, file.source_name) for file in find_inputs(["./year=2020/*"])] == [("./year=2020/a.txt", "")]


def test_sources_that_cannot_be_told_apart_are_refused(tmp_path):
    one, two, blank = write(tmp_path / "a.txt"), write(tmp_path / "b.txt"), write(tmp_path / "c.txt", b" ")
    unnamed = "has no name, and other text has (NAME=PATH_OR_GLOB); name all sources or none"
    assert refusal(f"web={one}", two) == f"{two}: {unnamed}"
    assert refusal(f"web={one}", f"books={tmp_path}/*.txt") == f"{one}: is in two sources, web and books"
    assert refusal(f"replay={one}") == f"replay={one}: replay is the text of --replay; give another name"
    assert refusal(f"web={one}", f"blank={blank}").startswith(f"source blank: {blank}: no text in 1 file(s)")
    assert refusal(f"web={one}", f"none={two}s").startswith(f"source none: {two}s: no such file; --corpus takes")


def test_the_list_of_files_is_named_by_their_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "fingerprint", lambda files: "abc")
    files = [InputFile("gs://b/a b.txt", 3, 1.5), InputFile("/x/\udcff.txt", 1 << 40)]
    path = InputList.write(files, f"{tmp_path}/lists").path
    assert path == f"{tmp_path}/lists/abc.json"
    assert read_input_list(path) == [InputFile("/x/\udcff.txt", 1 << 40), InputFile("gs://b/a b.txt", 3)]
    before = os.stat(path).st_mtime_ns
    assert InputList.write(files, f"{tmp_path}/lists").path == path and os.stat(path).st_mtime_ns == before
