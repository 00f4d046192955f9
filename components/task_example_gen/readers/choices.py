"""Multiple choice: SWAG and CODAH.

SWAG is a CSV with its official header:

    ,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
    7,anetv_1,3304,"A man rides. He",A man rides.,He,gold,sings.,"falls, twice.",turns.,waves.,1

is TaskRow("7", {"text": "A man rides.", "choices": ("He sings.", "He falls, twice.", "He turns.", "He waves.")}, 1), as
in the paper (section 4.4: the sentence is the first text, each completion the second). Test sets have no labels. The
source of a row is the prefix of the video's name: anetv (ActivityNet) or lsmdc (films).

CODAH is a TSV with seven columns without a header: category, prompt, four answers and the index of the right one:

    p TAB The woman enjoyed summer. She TAB skied. TAB swam. TAB froze. TAB slept. TAB 1

is TaskRow("0", {"text": "The woman enjoyed summer. She", "choices": ("skied.", "swam.", "froze.", "slept.")}, 1).
"""

from typing import BinaryIO

from bert_keras.errors import InputError
from bert_keras.tasks.rows import Input, TaskRow
from components.task_example_gen.readers.records import (
    LocatedRow,
    ReadRows,
    by_name,
    csv_records,
    index_of,
    numbered_lines,
    rows_of,
    tab_columns,
)

_ENDINGS = ("ending0", "ending1", "ending2", "ending3")
_CODAH_COLUMNS = 7


def read_swag(file: BinaryIO, source: str, labelled: bool = False) -> ReadRows:
    """Rows of a SWAG file; the rows of one video are a group. InputError: the header differs from SWAG's."""
    records = csv_records(file)
    where, header = next(records, ("line 1", []))
    names = [] if isinstance(header, Exception) else header
    for name in ("video-id", "sent1", "sent2", *_ENDINGS, *(("label",) if labelled else ())):
        if name not in names:
            raise InputError(
                f"{source}, {where}: has no column {name!r}, but {', '.join(map(repr, names)) or 'none'}; "
                "give train.csv, val.csv or test.csv of SWAG"
            )

    def parse(number: int, record: list[str]) -> LocatedRow:
        columns = by_name(record, names)
        choices = tuple(f"{columns['sent2']} {columns[ending]}".strip() for ending in _ENDINGS)
        gold = index_of(columns["label"], "label") if "label" in columns else None
        video = columns["video-id"]
        inputs: dict[str, Input] = {"text": columns["sent1"], "choices": choices}
        return LocatedRow("", TaskRow(columns.get("") or str(number), inputs, gold, video.partition("_")[0]), video)

    yield from rows_of(records, parse)


def read_codah(file: BinaryIO) -> ReadRows:
    """Rows of a CODAH file."""

    def parse(number: int, line: bytes) -> TaskRow:
        _, prompt, *answers, label = tab_columns(line, _CODAH_COLUMNS, "CODAH's")
        return TaskRow(str(number), {"text": prompt, "choices": tuple(answers)}, index_of(label, "the right answer"))

    return rows_of(numbered_lines(file), parse)
