"""Files to documents: every format, compression and archive; damage is named, nothing is lost."""

import bz2
import gzip
import io
import json
import lzma
import os
import stat
import tarfile
import tracemalloc
import zipfile
from collections import Counter
from pathlib import Path
from unittest import mock

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bert_keras.errors import InputError
from components.corpus_gen import archives, compression, plain_text, readers
from components.corpus_gen.inputs import InputFile
from components.corpus_gen.readers import COUNTS, ReadUnit, read_unit, read_units
from components.corpus_gen.settings import CorpusSettings
from components.tfrecord import bytes_example, frame

DATA = os.environ.get("BERT_DATA_DIR")
needs_data = pytest.mark.skipif(not DATA, reason="BERT_DATA_DIR is unset: no real corpora")
TEXT = "One.\ntwo\n\nThree.\n"
DOCUMENTS = [["One.", "two"], ["Three."]]


def zstd(data):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(data)
    return sink.getvalue().to_pybytes()


COMPRESSIONS = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path, counts=None, **settings):
    """The lines of each document of a whole file."""
    found = read_unit(ReadUnit(str(path)), CorpusSettings(**settings), Counter() if counts is None else counts)
    return [document.lines for document in found]


def refusal(path, **settings):
    with pytest.raises(InputError) as caught:
        read(path, **settings)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(str(path))
    return message


# Plain text.


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_line_ends_marks_and_compression_do_not_show(tmp_path, end, mark, compress):
    path = write(tmp_path / "a", compress((mark + TEXT.replace("\n", end)).encode()))
    assert read(path) == DOCUMENTS


def test_blank_lines_or_files_separate_documents(tmp_path):
    path = write(tmp_path / "a", "\n one \ntwo\n \t\u00a0\n\n\nthree")
    assert read(path) == [["one", "two"], ["three"]]
    assert read(path, documents="files") == [["one", "two", "three"]]


LINES = st.lists(
    st.sampled_from(["", " ", "\t", "\u00a0", "a", "bb bb", "ééé", "漢字", "x" * 30, "\0", "\ufeff"]), max_size=30
)


@mock.patch.object(readers, "MAX_STRANGE_SHARE", 1.0)  # NULs among the lines
@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.integers(1, 40), st.booleans())
def test_however_a_file_is_cut_the_documents_are_the_same(tmp_path_factory, lines, end, size, last_end):
    content = (end.join(lines) + end * last_end).encode()
    path = write(tmp_path_factory.mktemp("cut") / "a", content)
    settings = CorpusSettings(max_document_characters=50)
    whole = Counter()
    expected = read(path, whole, max_document_characters=50)
    counts, found = Counter(), []
    for start in range(0, len(content), size):
        found += read_unit(ReadUnit(str(path), start, start + size), settings, counts)
    assert [document.lines for document in found] == expected
    assert counts["read_documents"] == whole["read_documents"]
    assert counts["split_documents"] == whole["split_documents"]


@given(LINES.filter(lambda lines: "\0" not in lines), st.integers(1, 20), st.integers(1, 9))
def test_long_documents_are_cut_and_nothing_is_lost(tmp_path_factory, lines, limit, block):
    path = write(tmp_path_factory.mktemp("long") / "a", "\n".join(lines))
    counts = Counter()
    before, plain_text.BLOCK_BYTES = plain_text.BLOCK_BYTES, block
    try:
        parts = read(path, counts, max_document_characters=limit)
    finally:
        plain_text.BLOCK_BYTES = before
    whole = read(path)
    assert "".join("".join(part) for part in parts).replace(" ", "") == "".join(
        "".join(document) for document in whole
    ).replace(" ", "")
    assert all(sum(map(len, part)) <= limit for part in parts)
    assert counts["read_documents"] == len(whole)
    assert counts["split_documents"] == sum(sum(map(len, document)) > limit for document in whole)


def test_a_long_line_is_cut_at_blanks(tmp_path):
    path = write(tmp_path / "a", "word " * 10)
    assert read(path, max_document_characters=12) == [["word word"]] * 5
    assert read(write(path, "x" * 25), max_document_characters=10) == [["x" * 10], ["x" * 10], ["x" * 5]]


def test_memory_does_not_grow_with_a_line(tmp_path):
    path = tmp_path / "a"
    with path.open("wb") as file:
        for _ in range(40):
            file.write(b"no end " * 150_000)
    tracemalloc.start()
    try:
        characters = sum(
            len(line) for d in read_unit(ReadUnit(str(path)), CorpusSettings(), Counter()) for line in d.lines
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert characters > 41e6 and peak < 15e6


@pytest.mark.parametrize(
    ("policy", "documents", "counted"),
    [
        ("replace", [["caf\ufffd\ufffd"], ["good"]], {"invalid_utf8_bytes": 2}),
        ("drop", [["good"]], {"invalid_utf8_dropped": 1}),
    ],
)
def test_bytes_that_are_no_utf8(tmp_path, policy, documents, counted):
    counts = Counter()
    path = write(tmp_path / "a", b"caf\xe9\xff\n\ngood\n" + b" " * 500)
    assert read(path, counts, invalid_utf8=policy) == documents
    assert {name: counts[name] for name in counts if name.startswith("invalid")} == counted


def test_bytes_that_are_no_utf8_may_fail(tmp_path):
    message = refusal(write(tmp_path / "a", b"good\n\ncaf\xe9 x" + b" " * 500), invalid_utf8="fail")
    assert "not UTF-8 in the document that begins 'caf" in message and "--set corpus.invalid_utf8=replace" in message


def test_a_character_across_blocks_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_text, "BLOCK_BYTES", 1)
    counts = Counter()
    assert read(write(tmp_path / "a", "漢字\r\n\r\né\r\n"), counts) == [["漢字"], ["é"]]
    assert not counts["invalid_utf8_bytes"]


def test_nul_characters_are_left_out(tmp_path):
    counts = Counter()
    path = write(tmp_path / "a", "one\0 line\n" + "and many more\n" * 20 + "\n\0\n\nlast\n")
    documents = read(path, counts)
    assert documents[0][0] == "one line" and documents[1:] == [["last"]]
    assert counts["nul_characters"] == 2


@pytest.mark.parametrize(
    "content",
    [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), b"\x7fELF" + bytes(60), "text".encode("utf-16")],
)
def test_what_is_no_text_is_refused(tmp_path, content):
    assert ": is " in refusal(write(tmp_path / "a", content))


# Records.


def jsonl(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def table(texts):
    sink = io.BytesIO()
    parquet.write_table(pyarrow.table({"id": list(range(len(texts))), "text": texts}), sink)
    return sink.getvalue()


RECORDS = {
    "a.jsonl": jsonl([{"text": "One.\r\ntwo", "id": 1}, {"text": " "}, {"text": "Three."}]),
    "a.csv": 'id,text\r\n1,"One.\ntwo"\r\n2,\r\n3,Three.\r\n',
    "a.parquet": table(["One.\ntwo", None, "Three."]),
    "a.tfrecord": b"".join(frame(bytes_example({"text": v})) for v in ([b"One.", b"two"], [], [b"Three."])),
}


@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
@pytest.mark.parametrize("name", RECORDS)
def test_records(tmp_path, name, compress):
    content = RECORDS[name] if isinstance(RECORDS[name], bytes) else RECORDS[name].encode()
    counts = Counter()
    if name == "a.parquet" and compress is not bytes:
        pytest.skip("Parquet is read from its end: it is not compressed as a whole")
    assert read(write(tmp_path / f"{name}.gz", compress(content)), counts) == DOCUMENTS
    assert counts["empty_documents"] == 1 and counts["read_documents"] == 2


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.tfrecord"])
def test_the_content_says_what_a_file_is(tmp_path, name):
    content = RECORDS[name] if isinstance(RECORDS[name], bytes) else RECORDS[name].encode()
    assert read(write(tmp_path / "no_name", content)) == DOCUMENTS


def test_a_field_is_named(tmp_path):
    path = write(tmp_path / "a.jsonl", jsonl([{"body": "One."}]))
    assert read(path, text_field="body") == [["One."]]
    assert "a.jsonl, line 1: has no field 'text', but body; name it with --text-field" in refusal(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n{"text"\n', "line 2: is not JSON"),
        ("a.jsonl", '{"text": "a"}\n[1]\n', "line 2: is list, not an object"),
        ("a.jsonl", '{"text": 3}\n', "line 1: field 'text' is int, not text"),
        ("a.csv", "id,body\n1,a\n", "has no column 'text', but body, id"),
        ("a.parquet", b"PAR1 and then nothing", "is not Parquet"),
        ("a.tfrecord", frame(b"\xff\xff"), "record 0: is no tf.Example"),
        ("a.tfrecord", frame(bytes_example({"body": [b"a"]})), "record 0: has no feature 'text', but body"),
        ("a.tfrecord", (frame(b"") * 2)[:-3], "record 0: has no feature 'text', but none"),
        ("a", '<doc id="1">\nOne.\n', "has no </doc>: the file is cut off"),
        ("a", '<doc id="1">\nOne.\n</doc>\nTwo.\n', "'Two.' is outside of <doc ...>"),
    ],
)
def test_a_bad_record_is_named(tmp_path, name, content, message):
    assert message in refusal(write(tmp_path / name, content))


def test_a_cut_tfrecord_file_is_named(tmp_path):
    whole = frame(bytes_example({"text": [b"One."]}))
    assert "record 1: is cut off" in refusal(write(tmp_path / "a.tfrecord", whole + whole[:-2]))


def test_quotes_are_characters_in_tsv_and_quotes_in_csv(tmp_path):
    assert read(write(tmp_path / "a.tsv", 'id\ttext\n1\t"One" more\n2\n')) == [['"One" more']]
    assert read(write(tmp_path / "a.csv", 'text,id\n"One ""more""",1\n')) == [['One "more"']]


def test_wikiextractor(tmp_path):
    text = '<doc id="1" url="u" title="One.">\nOne.\n\ntwo\n\n</doc>\n\n<doc id="2">\nThree.\n\n</doc>\n'
    assert read(write(tmp_path / "wiki_00", text)) == DOCUMENTS


@given(st.lists(st.text(max_size=15), max_size=12), st.integers(1, 60))
def test_however_json_lines_are_cut_the_documents_are_the_same(tmp_path_factory, texts, size):
    content = "".join(json.dumps({"text": t}, ensure_ascii=len(t) % 2 == 0) + "\n" for t in texts)
    path = write(tmp_path_factory.mktemp("cut") / "a.jsonl", content.encode("utf-8", "surrogatepass"))
    found = []
    length = path.stat().st_size
    for start in range(0, length, size):
        found += read_unit(ReadUnit(str(path), start, start + size), CorpusSettings(), Counter())
    assert [document.lines for document in found] == read(path)


def test_a_bad_record_of_a_cut_file_is_named_by_its_place(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a"}\n{"body": "b"}\n')
    with pytest.raises(InputError, match=r"a\.jsonl, the line at byte 14: has no field 'text'"):
        list(read_unit(ReadUnit(str(path), 5, 100), CorpusSettings(), Counter()))


# Units.


def test_only_what_can_be_cut_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MIN_UNIT_BYTES", 1)
    text = "One.\n\n" * 10
    paths = {
        "a.txt": text.encode(),
        "b.txt.gz": gzip.compress(os.urandom(60)),
        "c.jsonl": jsonl([{"text": "One."}] * 4).encode(),
        "d.csv": b"text\nOne.\nTwo\nThree and more text\n",
    }
    files = [InputFile(str(write(tmp_path / name, content)), len(content)) for name, content in paths.items()]
    units = read_units(files, CorpusSettings(bucket_bytes=25))
    assert [(Path(u.path).name, u.start, u.end) for u in units] == [
        ("a.txt", 0, 25),
        ("a.txt", 25, 50),
        ("a.txt", 50, None),
        ("b.txt.gz", 0, None),
        ("c.jsonl", 0, 25),
        ("c.jsonl", 25, 50),
        ("c.jsonl", 50, None),
        ("d.csv", 0, None),
    ]
    whole = read_units(files[:1], CorpusSettings(bucket_bytes=25, documents="files"))
    assert [(u.start, u.end) for u in whole] == [(0, None)]


# Archives.


def zipped(members, **kwargs):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return sink.getvalue()


def tarred(members, extra=()):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in extra:
            archive.addfile(info)
    return sink.getvalue()


MEMBERS = {
    "one.txt": TEXT.encode(),
    "deep/er/two.txt.gz": gzip.compress(b"Four."),
    "three.jsonl": b'{"text": "Five."}\n',
    "empty.txt": b"",
    "picture.png": b"\x89PNG" + bytes(100),
    "inner.zip": zipped({"a": b"Six."}),
    "../../outside.txt": b"Seven.",
    "/absolute.txt": b"Eight.",
}
FOUND = [*DOCUMENTS, ["Four."], ["Five."], ["Seven."], ["Eight."]]


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_archives(tmp_path, pack, compress):
    """Each member is a file; names that lead outside are only names, for nothing is written."""
    if pack is zipped and compress is not bytes:
        pytest.skip("a zip archive is read from its end: it is not compressed as a whole")
    path = write(tmp_path / "in/a.archive", b"") if (tmp_path / "in").mkdir() else tmp_path / "in/a.archive"
    write(path, compress(pack(MEMBERS)))
    counts = Counter()
    found = list(read_unit(ReadUnit(str(path)), CorpusSettings(), counts))
    assert [document.lines for document in found] == FOUND
    assert found[0].source == f"{path}!one.txt"
    assert counts["skipped_members"] == 2
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.archive", "in"]


def test_links_devices_and_folders_of_archives_are_passed_over(tmp_path):
    extra = []
    for name, kind, target in (
        ("link", tarfile.SYMTYPE, "/etc/passwd"),
        ("hard", tarfile.LNKTYPE, "one.txt"),
        ("device", tarfile.CHRTYPE, ""),
        ("folder", tarfile.DIRTYPE, ""),
        ("pipe", tarfile.FIFOTYPE, ""),
    ):
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        extra.append(info)
    assert read(write(tmp_path / "a.tar", tarred({"one.txt": TEXT.encode()}, extra))) == DOCUMENTS
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("folder/", "")
        archive.writestr("one.txt", TEXT)
    assert read(write(tmp_path / "a.zip", sink.getvalue())) == DOCUMENTS


def test_an_encrypted_member_is_named(tmp_path):
    content = bytearray(zipped({"one.txt": TEXT}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1
    assert "member one.txt is encrypted" in refusal(write(tmp_path / "a.zip", bytes(content)))


def test_limits_of_archives(tmp_path, monkeypatch):
    path = write(tmp_path / "a.zip", zipped({"one.txt": TEXT, "two.txt": TEXT}))
    monkeypatch.setattr(archives, "MAX_MEMBERS", 1)
    assert "a.zip: has more than 1 members" in refusal(path)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 10)
    monkeypatch.setattr(archives, "MAX_TOTAL_BYTES", 20)
    assert "member two.txt: with it the archive holds more than 20 bytes" in refusal(path)


@pytest.mark.parametrize("pack", [zipped, lambda m: gzip.compress(tarred(m)), lambda m: gzip.compress(m["a"])])
def test_what_grows_out_of_proportion_is_refused(tmp_path, monkeypatch, pack):
    """A member or a file that decompresses to over 500 times its size."""
    path = write(tmp_path / "bomb", pack({"a": b"a" * 3_000_000}))
    for module in (archives, compression):
        monkeypatch.setattr(module, "RATIO_FROM_BYTES", 1 << 20)
    assert "over 500 times its size" in refusal(path)


# Damage.


@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd"])
def test_a_damaged_file_is_named(tmp_path, name):
    whole = COMPRESSIONS[name](os.urandom(40_000).hex().encode())
    changed = whole[:20_000] + b"????" + whole[20_004:]
    # A zstd file need not have a checksum, and these have none.
    for content in (whole[:-9], whole[:20_000], *([changed] if name != "zstd" else [])):
        assert ": cannot be read (" in refusal(write(tmp_path / "a", content))


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
def test_a_damaged_archive_is_named(tmp_path, pack):
    whole = pack({"a.txt": os.urandom(40_000).hex().encode()})
    assert ": cannot be read (" in refusal(write(tmp_path / "a", whole[: len(whole) // 2]))


FORMATS = ["auto", "text", "jsonl", "wikiextractor", "csv", "tsv", "parquet", "tfrecord"]
HEADS = [
    b"",
    b"PAR1",
    b"PK\x03\x04",
    b"\x1f\x8b\x08",
    b"BZh9",
    b"\xfd7zXZ\0",
    b"\x28\xb5\x2f\xfd",
    b"text\n",
    b"{",
    b"<doc >",
]


@given(st.sampled_from(HEADS), st.binary(max_size=400), st.sampled_from(FORMATS))
def test_random_bytes_are_documents_or_refused(tmp_path_factory, head, content, kind):
    path = write(tmp_path_factory.mktemp("fuzz") / "a", head + content)
    counts = Counter()
    try:
        for document in read_unit(ReadUnit(str(path)), CorpusSettings(format=kind), counts):
            assert document.lines and all(line == line.strip() != "" for line in document.lines)
            "".join(document.lines).encode()
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    assert set(counts) <= set(COUNTS)


# Real corpora.


@needs_data
@pytest.mark.parametrize(
    ("name", "settings", "documents"),
    [
        ("corpus_nltk/state_union.zip", {"documents": "files"}, 65),
        ("corpus_zhwiki", {}, 2306),
        ("corpus_novels", {"documents": "files"}, 18),
    ],
)
def test_real_corpora(name, settings, documents):
    path = Path(DATA) / name
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    counts = Counter()
    found = []
    for file in files:
        if file.suffix != ".md":
            found += read_unit(ReadUnit(str(file)), CorpusSettings(**settings), counts)
    assert len({document.source for document in found}) >= min(documents, len(files))
    assert counts["read_documents"] == documents
    assert not counts["invalid_utf8_bytes"]
