"""The user's own tables (tasks `text`, `text-...`, `rerank` and `sentence-...`), and AG News.

The format depends on the extension, before that of a compressed file:

    .tsv .txt      a header, then rows; quotes are ordinary characters            text TAB label
    .csv           a header, then rows; quoted as in RFC 4180                     "Well, yes",good
    .jsonl .ndjson .json   one object per line                                    {"text": "Well, yes", "label": "good"}

is TaskRow("0", {"text": "Well, yes"}, "good"). Columns have the names in `Columns`; others are ignored. A label is a
name; a whole number in JSON becomes its decimal form; of `text-score` it is a number. Without the label's column (or
key, or with null) a row has no label. Of `text-labels` it is any number of names, joy|surprise, in JSON also a list of
them; none of the labels is right where it is empty.

For vectors of texts only `text` is required; `text_pair`, its positive, and `negative` are read where they are there. A
label is a score there, of pairs to be judged by; STS-B's columns sentence1, sentence2 and score are read without being
named.

Of `rerank` the text is a query, text_pair a passage (columns query and passage are read without being named), and the
label the relevance: 0 for none, 1, or more for graded relevance. Rows of one query are a group.

AG News has no header: `text TAB label name` of a .tsv, or the official .csv, "class","title","description", whose
classes 1 to 4 are World, Sports, Business and Sci/Tech and whose text is title and description with a blank between.
"""

import json
from collections.abc import Container, Iterable, Iterator
from typing import Any, BinaryIO

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import SEPARATOR, Task
from components.io.compression import extension
from components.task_example_gen.readers.records import (
    ReadRows,
    RowError,
    by_name,
    check_repeated,
    csv_records,
    decoded,
    index_of,
    number_of,
    numbered_lines,
    rows_of,
    tab_columns,
)
from components.task_example_gen.settings import Columns

AG_NEWS_CLASSES = ("World", "Sports", "Business", "Sci/Tech")
JSON_LINES = (".jsonl", ".ndjson", ".json")
TABLES = (".tsv", ".txt", ".csv", *JSON_LINES)
_HEADLESS = "ag-news"
_STS_B = {"text": "sentence1", "text_pair": "sentence2", "label": "score"}
# By task type: names that columns may have without being named.
_OTHER_NAMES = {
    "similarity": _STS_B,
    "retrieval": _STS_B,
    "ranking": {"text": "query", "text_pair": "passage"},
}


def read_table(task: Task, file: BinaryIO, source: str, columns: Columns, labelled: bool = False) -> ReadRows:
    """Rows of a table; InputError if its extension is not one of the above, or the header lacks a column."""
    if (kind := extension(source)) not in TABLES:
        raise InputError(f"{source} is not a table by its name, which must end in {', '.join(TABLES)}")
    if kind in JSON_LINES:
        lines = numbered_lines(file)
        return rows_of(lines, lambda number, line: _row(task, number, json_object(line), columns, labelled))
    if task.name == _HEADLESS:
        return _read_csv_of_news(file) if kind == ".csv" else _read_tsv_of_news(file)
    return _read_columns(task, file, source, kind, columns, labelled)


def _read_columns(task: Task, file: BinaryIO, source: str, kind: str, columns: Columns, labelled: bool) -> ReadRows:
    records: Iterator[tuple[str, Any]] = csv_records(file) if kind == ".csv" else numbered_lines(file)
    where, first = next(records, ("", None))
    if first is None:
        return
    if isinstance(first, Exception):
        raise InputError(f"{source}, {where}: {first}; its first line must be a header")
    try:
        header: list[str] = first if kind == ".csv" else decoded(first).split("\t")
    except RowError as error:
        raise InputError(f"{source}, {where}: {error}; give the table in UTF-8") from error
    for field in _required(task, labelled):
        if (name := _name(task, columns, field, header)) not in header:
            raise InputError(f"{source}, {where}: {_lacks('column', name, header, field)}")
    check_repeated(f"{source}, {where}", header, [_name(task, columns, field, header) for field in vars(columns)])

    def parse(number: int, record: Any) -> TaskRow:
        values = record if kind == ".csv" else tab_columns(record, len(header), "the header's")
        return _row(task, number, by_name(values, header), columns, labelled)

    yield from rows_of(records, parse)


def _required(task: Task, labelled: bool) -> list[str]:
    """Fields that every row has, by their names in `Columns`."""
    return ["text", *["text_pair"] * task.pair, *["label"] * (labelled and not task.contrastive)]


def _lacks(kind: str, name: str, names: Iterable[str], field: str) -> str:
    """Reason why a header or an object cannot be read, and the remedy."""
    return (
        f"has no {kind} {name!r}, but {', '.join(map(repr, names))}; "
        f"rename one, or name it with --set data.columns.{field}=NAME"
    )


def _name(task: Task, columns: Columns, field: str, record: Container[str]) -> str:
    """The column of a field."""
    name = getattr(columns, field)
    other = _OTHER_NAMES.get(task.kind, {}).get(field, name)
    return other if name not in record and other in record else name


def _row(task: Task, number: int, record: dict[str, Any], columns: Columns, labelled: bool) -> TaskRow:
    inputs = {}
    for field in _required(task, labelled):
        if (name := _name(task, columns, field, record)) not in record:
            raise RowError(_lacks("key", name, record, field))
    optional = ("text_pair", "negative") if task.contrastive else ()
    for field in ("text", "text_pair") if task.pair else ("text", *optional):
        if (name := _name(task, columns, field, record)) not in record:
            continue
        if not isinstance(record[name], str):
            raise RowError(f"{name!r} is {type(record[name]).__name__}, not text")
        inputs[field] = record[name]
    label = record.get(_name(task, columns, "label", record))
    if label is not None and (task.contrastive or task.answer_kind == "regression"):
        label = number_of(str(label), columns.label)
        if task.kind == "ranking":
            if label < 0 or label % 1:
                raise RowError(f"{columns.label!r} is {label:g}; it must be 0, not relevant, or a whole number above")
            label = [inputs["text"], int(label)]
    elif label is not None:
        several = task.kind == "multi_label"
        names = label if several and isinstance(label, list) else [label]
        for name in names:
            if isinstance(name, bool) or not isinstance(name, (str, int)):
                raise RowError(f"{columns.label!r} is {type(name).__name__}, not a label's name")
        label = SEPARATOR.join(map(str, names))
        if several:
            label = sorted({name.strip() for name in label.split(SEPARATOR)} - {""})
    source = record.get(columns.source, "") if columns.source else ""
    if not isinstance(source, str):
        raise RowError(f"{columns.source!r} is {type(source).__name__}, not text")
    if task.kind == "retrieval":
        if label is not None:
            raise RowError("has a label; rows of pairs that belong together have none: leave the others out")
        label = inputs.get("text_pair")
    return TaskRow(str(number), inputs, label, source)


def json_object(line: bytes) -> dict[str, Any]:
    """The object in a line of JSON; RowError if it is none."""
    try:
        record = json.loads(decoded(line))
    except RecursionError as error:
        raise RowError("is not JSON (nested too deeply)") from error
    except json.JSONDecodeError as error:
        raise RowError(f"is not JSON ({error.msg} at character {error.colno})") from error
    if not isinstance(record, dict):
        raise RowError(f"is {type(record).__name__}, not an object")
    return record


def _read_tsv_of_news(file: BinaryIO) -> ReadRows:
    def parse(number: int, line: bytes) -> TaskRow:
        text, label = tab_columns(line, 2, "AG News's")
        return TaskRow(str(number), {"text": text}, label)

    return rows_of(numbered_lines(file), parse)


def _read_csv_of_news(file: BinaryIO) -> ReadRows:
    def parse(number: int, record: list[str]) -> TaskRow:
        if len(record) != 3:
            raise RowError(f"has {len(record)} columns, not AG News's 3")
        label = index_of(record[0], "the class")
        if not 1 <= label <= len(AG_NEWS_CLASSES):
            raise RowError(f"the class is {label}, not one of 1 to {len(AG_NEWS_CLASSES)}")
        return TaskRow(str(number), {"text": " ".join(record[1:])}, AG_NEWS_CLASSES[label - 1])

    return rows_of(csv_records(file), parse)
