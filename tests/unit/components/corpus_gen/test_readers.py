"""Documents from files of every format and compression; errors name the location, and nothing is lost."""

import gzip
import io
import json
import os
import tarfile
import typing
from collections import Counter
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bert_keras.data.tfrecord import bytes_example, frame
from bert_keras.errors import InputError
from components.corpus_gen import readers, records
from components.corpus_gen.inputs import InputFile
from components.corpus_gen.readers import COUNTS, ReadUnit, read_unit, read_units
from components.corpus_gen.settings import CorpusSettings
from components.io import line_ranges
from tests.support.examples.corpus_files import COMPRESSIONS, DOCUMENTS, read, refusal, write

DATA = os.environ.get("BERT_DATA_DIR")
needs_data = pytest.mark.skipif(not DATA, reason="BERT_DATA_DIR is unset: no real corpora")


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
    "categories.parquet": table(pyarrow.array(["One.\ntwo", None, "Three."]).dictionary_encode()),
    "a.tfrecord": b"".join(frame(bytes_example({"text": v})) for v in ([b"One.", b"two"], [], [b"Three."])),
}


@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
@pytest.mark.parametrize("name", RECORDS)
def test_records_of_every_format(tmp_path, name, compress):
    content = RECORDS[name] if isinstance(RECORDS[name], bytes) else RECORDS[name].encode()
    counts = Counter()
    path = write(tmp_path / f"{name}.gz", compress(content))
    assert read(path, counts) == DOCUMENTS
    assert counts["empty_documents"] == 1 and counts["read_documents"] == 2


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.tfrecord"])
def test_the_format_follows_from_the_content(tmp_path, name):
    content = RECORDS[name] if isinstance(RECORDS[name], bytes) else RECORDS[name].encode()
    assert read(write(tmp_path / "no_name", content)) == DOCUMENTS


def test_parquet_in_a_tar(tmp_path):
    """A tar is a stream, and Parquet is read from its end."""
    write(tmp_path / "a.parquet", RECORDS["a.parquet"])
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "a.parquet", "a.parquet")
    assert read(tmp_path / "a.tar") == DOCUMENTS


def test_json_lines_without_a_name_are_never_text(tmp_path):
    """WikiExtractor's `wiki_00`: the first article is longer than what is looked at, or has another field."""
    long = write(tmp_path / "wiki_00", jsonl([{"text": "x" * readers.SNIFFED_BYTES}, {"text": "Three."}]))
    assert [len(document[0]) for document in read(long)] == [readers.SNIFFED_BYTES, 6]
    other = write(tmp_path / "wiki_01", jsonl([{"body": "One."}] * 2))
    assert "wiki_01, line 1: has no field 'text', but body" in refusal(other)
    deep = '{"b":' + "[" * 20_000
    assert read(write(tmp_path / "a", f'{{"a" and more\n{deep}\n')) == [['{"a" and more', deep]]
    assert read(write(tmp_path / "b", f"{deep}\n")) == [[deep]]
    assert read(write(tmp_path / "c", '{"Hallo," she said.}')) == [['{"Hallo," she said.}']]


def test_the_page_names_every_format():
    page = (Path(__file__).parents[4] / "docs/examples.md").read_text()
    table = (
        page[page.index("## What is read") : page.index("## What is cleaned")].lower().replace("json lines", "jsonl")
    )
    _, *formats = typing.get_args(typing.get_type_hints(CorpusSettings)["format"])
    assert [name for name in formats if name not in table] == []


def test_text_field_selects_the_text(tmp_path):
    path = write(tmp_path / "a.jsonl", jsonl([{"body": "One."}]))
    assert read(path, text_field="body") == [["One."]]
    assert "a.jsonl, line 1: has no field 'text', but body; name it with corpus.text_field" in refusal(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n{"text"\n', "line 2: is not JSON"),
        ("a.jsonl", '{"text": "a"}\n[1]\n', "line 2: is list, not an object"),
        ("a.jsonl", '{"text": "a"}\n' + "[" * 100_000 + "\n", "line 2: is not JSON (maximum recursion depth"),
        ("a.jsonl", '{"text": 3}\n', "line 1: field 'text' is int, not text"),
        ("a.csv", "id,body\n1,a\n", "has no column 'text', but body, id"),
        ("a.csv", 'text\na\n"b\nc\nd\n', "line 3: is not CSV (unexpected end of data); correct it"),
        ("a.csv", 'text\n"a\nb"\nWell, yes\n', "line 4: has 2 columns, not the header's 1; correct it"),
        ("a.tsv", "id\ttext\n1\ta\n2\n", "line 3: has 1 columns, not the header's 2; correct it"),
        ("a.parquet", b"PAR1 and then nothing", "is not Parquet"),
        ("a.tfrecord", frame(b"\xff\xff"), "record 0: is not a tf.Example"),
        ("a.tfrecord", frame(bytes_example({"body": [b"a"]})), "record 0: has no feature 'text', but body"),
        ("a.tfrecord", (frame(b"") * 2)[:-3], "record 0: has no feature 'text', but none"),
        ("a.tfrecord", (frame(bytes_example({"text": [b"One."]})) * 2)[:-2], "record 1: is cut off"),
        ("a", '<doc id="1">\nOne.\n', "has no </doc>: the file is cut off"),
        ("a", '<doc id="1">\nOne.\n</doc>\nTwo.\n', "'Two.' is outside of <doc ...>"),
    ],
)
def test_malformed_records_are_reported_with_their_location(tmp_path, name, content, message):
    assert message in refusal(write(tmp_path / name, content))


def test_a_damaged_page_of_parquet_is_reported(tmp_path):
    content = bytearray(table(["One."]))
    text = parquet.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(1)
    first = text.dictionary_page_offset
    content[first : first + 20] = b"\xff" * 20
    assert "a.parquet, row 0: is damaged (" in refusal(write(tmp_path / "a.parquet", bytes(content)))


def test_parquet_text_that_is_not_utf8_is_treated_as_in_other_formats(tmp_path):
    """A writer may store any bytes in a text column."""
    values = pyarrow.array([b"One.", b"tw\xff"], pyarrow.binary())
    text = pyarrow.Array.from_buffers(pyarrow.string(), len(values), values.buffers())
    sink = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": text}), sink)
    path = write(tmp_path / "a.parquet", sink.getvalue())
    assert read(path) == [["One."], ["tw\ufffd"]]


def test_only_csv_has_quoting(tmp_path):
    assert read(write(tmp_path / "a.tsv", 'id\ttext\n1\t"One" more\n\n')) == [['"One" more']]
    assert read(write(tmp_path / "a.csv", 'text,id\n"One ""more""",1\n')) == [['One "more"']]
    assert read(write(tmp_path / "b.csv", "id,text\n1,One.\n  \n2,\0\n")) == [["One."]]
    assert read(write(tmp_path / "c.csv.GZ", gzip.compress(b"id,text\n1,One.\n"))) == [["One."]]


def test_wikiextractor(tmp_path):
    text = '<doc id="1" url="u" title="One.">\nOne.\n\ntwo\n\n</doc>\n\n<doc id="2">\nThree.\n\n</doc>\n'
    assert read(write(tmp_path / "wiki_00", text)) == DOCUMENTS


@given(st.lists(st.text(max_size=15), max_size=12), st.integers(1, 60))
def test_documents_from_json_lines_do_not_depend_on_the_cuts(tmp_path_factory, texts, size):
    content = "".join(json.dumps({"text": t}, ensure_ascii=len(t) % 2 == 0) + "\n" for t in texts)
    path = write(tmp_path_factory.mktemp("cut") / "a.jsonl", content.encode("utf-8", "surrogatepass"))
    found = []
    length = path.stat().st_size
    for start in range(0, length, size):
        found += read_unit(ReadUnit(str(path), start, start + size), CorpusSettings(), Counter())
    assert [document.lines for document in found] == read(path)


def test_a_json_line_over_many_ranges_is_read_once():
    """A line begun in an earlier range is skipped, but not beyond the end of the range."""
    file = io.BytesIO(json.dumps({"text": "a few words " * 400_000}).encode() + b'\n{"text": "b"}\n')
    assert list(records.read_jsonl(file, "a", "text", 1_000_000, 1_100_000)) == []
    assert file.tell() <= 1_100_000 + line_ranges._BLOCK_BYTES
    assert [text for _, text in records.read_jsonl(file, "a", "text", 1_000_000, None)] == ["b"]


def test_a_malformed_record_in_a_range_is_reported_with_its_position(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a"}\n{"body": "b"}\n')
    with pytest.raises(InputError, match=r"a\.jsonl, the line at byte 14: has no field 'text'"):
        list(read_unit(ReadUnit(str(path), 5, 100), CorpusSettings(), Counter()))


def test_a_file_ends_its_last_document(tmp_path):
    """The original continues it with the next file; then documents depend on which files are given together."""
    assert read(write(tmp_path / "a", "One.\ntwo")) + read(write(tmp_path / "b", "Three.")) == DOCUMENTS


# Units of work.


def pieces(paths, **settings):
    files = [InputFile(str(path), path.stat().st_size) for path in paths]
    made = read_units(files, CorpusSettings(**settings))
    return [[(Path(unit.path).name, unit.start, unit.end) for unit in piece] for piece in made]


def test_only_divisible_files_are_divided(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MIN_WORK_BYTES", 25)
    contents = {
        "a.txt": b"One.\n\n" * 10,
        "b.txt.gz": gzip.compress(os.urandom(60)),
        "c.jsonl": jsonl([{"text": "One."}] * 4).encode(),
        "d.csv": b"text\nOne.\nTwo\nThree and more text\n",
    }
    paths = [write(tmp_path / name, content) for name, content in contents.items()]
    assert pieces(paths) == [
        [("a.txt", 0, 25)],
        [("a.txt", 25, 50)],
        [("a.txt", 50, None)],
        [("b.txt.gz", 0, None)],
        [("c.jsonl", 0, 25)],
        [("c.jsonl", 25, 50)],
        [("c.jsonl", 50, None)],
        [("d.csv", 0, None)],
    ]
    assert pieces(paths[:1], documents="files") == [[("a.txt", 0, None)]]


def test_small_files_are_combined(tmp_path, monkeypatch):
    """One run of sorted documents for each of a million files would be a million runs."""
    monkeypatch.setattr(readers, "MIN_WORK_BYTES", 25)
    paths = [write(tmp_path / f"{number}.txt", "x" * size) for number, size in enumerate([10, 10, 5, 1, 30, 20])]
    assert pieces(paths) == [
        [("0.txt", 0, None), ("1.txt", 0, None), ("2.txt", 0, None)],
        [("3.txt", 0, None)],
        [("4.txt", 0, 25)],
        [("4.txt", 25, None), ("5.txt", 0, None)],
    ]


def test_units_grow_with_the_corpus_within_the_memory_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_can_be_cut", lambda path, settings: True)

    def sizes(total, **settings):
        units = [unit for piece in read_units([InputFile("a", total)], CorpusSettings(**settings)) for unit in piece]
        assert units[-1].end is None
        return len(units), units[0].end

    assert sizes(3 << 20) == (3, 1 << 20)
    assert sizes(1 << 30) == (64, 16 << 20)
    assert sizes(1 << 40) == (32768, 32 << 20)
    # With memory for large buckets there are fewer runs, each of which is read by every bucket.
    assert sizes(1 << 40, bucket_bytes=256 << 20) == (2048, 512 << 20)


# Damage.


@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd"])
def test_a_damaged_file_is_reported(tmp_path, name):
    whole = COMPRESSIONS[name](os.urandom(40_000).hex().encode())
    changed = whole[:20_000] + b"????" + whole[20_004:]
    # A zstd file need not have a checksum, and these have none.
    for content in (whole[:-9], whole[:20_000], *([changed] if name != "zstd" else [])):
        assert ": cannot be read (" in refusal(write(tmp_path / "a", content))


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
def test_random_bytes_give_documents_or_an_input_error(tmp_path_factory, head, content, kind):
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
    ("name", "settings", "documents", "bad_bytes"),
    [
        # 65 speeches and a README; some are in Latin-1.
        ("corpus_nltk/state_union.zip", {"documents": "files"}, 66, 331),
        ("corpus_zhwiki", {}, 2306, 0),
        # A novel is one file, and thus one document; there may be more of them later.
        ("corpus_novels", {"documents": "files"}, 18, 0),
    ],
)
def test_real_corpora(name, settings, documents, bad_bytes):
    path = Path(DATA) / name
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    if settings:
        files = files[:documents]
    counts = Counter()
    found = []
    for file in files:
        if file.suffix != ".md":
            found += read_unit(ReadUnit(str(file)), CorpusSettings(**settings), counts)
    assert len({document.source for document in found}) >= min(documents, len(files))
    assert counts["read_documents"] == documents
    assert counts["invalid_utf8_bytes"] == bad_bytes
