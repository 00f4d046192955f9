"""Rows of each format, and the ranges that files are divided into."""

import gzip
import json

import pyarrow
import pytest
from pyarrow import parquet

from bert_keras.data.tfrecord import bytes_example, frame
from bert_keras.errors import InputError
from components.corpus_gen.inputs import InputFile
from components.corpus_gen.readers import ReadUnit
from pipeline.apply import rows
from pipeline.apply.rows import plan, read_rows

ROWS = [{"text": f"row {n}, “{'x' * (n % 7)}”", "id": str(n)} for n in range(40)]


def write(path):
    kind = path.suffixes[0]
    if kind == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path, row_group_size=10)
        return
    if kind == ".jsonl":
        content = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    elif kind == ".tfrecord":
        content = b"".join(frame(bytes_example({k: [v.encode()] for k, v in row.items()})) for row in ROWS)
    else:
        separator = "," if kind == ".csv" else "\t"
        cell = (lambda value: f'"{value}\n"') if kind == ".csv" else str
        lines = [separator.join(ROWS[0]), *(separator.join(map(cell, row.values())) for row in ROWS)]
        content = ("\ufeff" + "\n".join(lines)).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def file_of(path):
    return InputFile(str(path), path.stat().st_size)


@pytest.fixture
def small_ranges(monkeypatch):
    monkeypatch.setattr(rows, "MIN_RANGE_BYTES", 300)


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.csv", "a.tsv", "a.parquet", "a.tfrecord", "a.jsonl.gz", "a.csv.gz", "a.tfrecord.gz"]
)
def test_every_format_in_ranges(name, tmp_path, small_ranges):
    path = tmp_path / name
    write(path)
    units = [unit for units in plan([file_of(path)]) for unit in units]
    assert (len(units) > 2) == (name in ("a.jsonl", "a.csv", "a.tsv", "a.parquet"))
    found, records = [], 0
    for unit in units:
        rows = list(read_rows(unit, {"text", "id"}))
        records += rows[-1].number
        found += [row.values for row in rows if row.values is not None]
    for row in found:
        row.pop("examples", None)
    assert [{k: v.rstrip("\n") for k, v in row.items()} for row in found] == ROWS
    # The numbers of lines (a header, two of a quoted record) add up over the ranges.
    assert records == {".csv": 81 + 40, ".tsv": 41}.get(path.suffixes[0], 40)


def test_small_files_share_a_range(tmp_path, small_ranges):
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text('{"text": "one"}\n')
    (units,) = plan([file_of(path) for path in sorted(tmp_path.iterdir())])
    assert [unit.path[-7:] for unit in units] == ["a.jsonl", "b.jsonl", "c.jsonl"]


@pytest.mark.parametrize(
    ("name", "content", "numbers", "reasons"),
    [
        ("a.jsonl", b'\n{"a": 1}\n{bad\n[1]\n"\xff"\n', [3, 4, 5], ["is not JSON", "is list, not an", "is not UTF-8"]),
        ("a.csv", b'a,b\n1,2\n3\n"4"x,5\n\xff,6\n', [3, 4, 5], ["has 1 columns, not", "is not CSV", "is not UTF-8"]),
        ("a.csv", b'a,b\n5" wide,6" high"\n7,8\n', [3], ["has a double quote"]),
        ("a.tsv", b'a\tb\n"1\t2\n3\n', [3], ["has 1 columns, not the header's 2"]),
        ("a.tfrecord", frame(b"no example") + frame(bytes_example({"a": [b"1"]})), [1], ["is not a tf.Example"]),
    ],
)
def test_bad_rows_are_numbered(name, content, numbers, reasons, tmp_path):
    (tmp_path / name).write_bytes(content)
    bad = [row for row in read_rows(ReadUnit(str(tmp_path / name)), {"a"}) if isinstance(row.values, Exception)]
    assert [row.number for row in bad] == numbers
    assert all(reason in str(row.values) for row, reason in zip(bad, reasons, strict=True))


@pytest.mark.parametrize("encode", [lambda column: column, pyarrow.Array.dictionary_encode], ids=["text", "categories"])
def test_bad_utf8_of_parquet_spoils_one_row(tmp_path, encode):
    column = encode(pyarrow.array([b"a", b"\xff", b"c"]).view(pyarrow.utf8()))
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    rows = list(read_rows(ReadUnit(str(tmp_path / "a.parquet")), {"text"}))
    assert [row.values if isinstance(row.values, dict) else str(row.values) for row in rows] == [
        {"text": "a"},
        "is not UTF-8",
        {"text": "c"},
    ]


def test_features_are_values_or_lists(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(frame(bytes_example({"text": [b"a"], "choices": [b"b", b"\xff"]})))
    (row,) = read_rows(ReadUnit(str(tmp_path / "a.tfrecord")), {"text"})
    assert row.values.pop("examples").keys() == {"b64"}
    assert row.values == {"text": "a", "choices": ["b", {"b64": "/w=="}]}


def test_a_damaged_file_is_named_before_any_row(tmp_path, small_ranges):
    write(tmp_path / "a.parquet")
    lines = gzip.compress(b'{"text": "a"}\n' * 99)
    damaged = {
        "b.parquet": (tmp_path / "a.parquet").read_bytes()[:-500],
        "b.jsonl.gz": lines[:-15],
        "c.jsonl.gz": lines[:12] + b"\xff" * 400,
    }
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=rf"{name}: cannot be read \(.*; give a readable, whole file"):
            plan([file_of(tmp_path / name)])


def test_damaged_and_unknown_files_are_named(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(frame(bytes_example({"text": [b"a"]}))[:-3])
    with pytest.raises(InputError, match=r"a\.tfrecord, record 0: is cut off; give a whole file"):
        list(read_rows(ReadUnit(str(tmp_path / "a.tfrecord")), {"text"}))
    (tmp_path / "a.csv").write_text("txt,id\n")
    with pytest.raises(InputError, match=r"a\.csv: has no column 'text', but 'txt', 'id'; name it with --column"):
        list(read_rows(ReadUnit(str(tmp_path / "a.csv")), {"text"}))
    (tmp_path / "d.csv").write_text("text,id,id,text\n")
    with pytest.raises(InputError, match=r"d\.csv: several columns are named 'text'; rename the others"):
        list(read_rows(ReadUnit(str(tmp_path / "d.csv")), {"text"}))
    (tmp_path / "c.csv").write_text('"txt"x,id\n')
    with pytest.raises(InputError, match=r"c\.csv: its first line is no header: is not CSV"):
        list(read_rows(ReadUnit(str(tmp_path / "c.csv")), {"text"}))
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"text\n" * 9999)[:-9])
    with pytest.raises(InputError, match=r"b\.csv\.gz: cannot be read"):
        list(read_rows(ReadUnit(str(tmp_path / "b.csv.gz")), {"text"}))
    for content in (b"\ntext\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\ntext\n"):
        (tmp_path / "d.csv").write_bytes(content)
        with pytest.raises(InputError, match=r"d\.csv: its first line is no header: is blank; correct it"):
            list(read_rows(ReadUnit(str(tmp_path / "d.csv")), {"text"}))
    (tmp_path / "a.dat").write_bytes(b"\0\1\2")
    with pytest.raises(InputError, match=r"a\.dat: is not JSON lines, CSV, TSV, Parquet or TFRecords"):
        plan([file_of(tmp_path / "a.dat")])
