"""GLUE's files, and data sets with the same columns in other languages.

Tab-separated, without quoting. Columns that are read, by task (test sets have no label):

    cola    (no header)  gj04 TAB 0 TAB * TAB They drank the pub.      source, label, mark, sentence
            test.tsv     index TAB sentence
    sst-2   sentence TAB label                                         test: index TAB sentence
    mrpc    Quality TAB #1 ID TAB #2 ID TAB #1 String TAB #2 String    GLUE's and the original's, with their BOM
    sts-b   index genre filename year old_index source1 source2 sentence1 sentence2 score
    mnli    index ... sentence1 TAB sentence2 TAB label1 ... gold_label
    qnli    index TAB question TAB sentence TAB label
    rte, wnli   index TAB sentence1 TAB sentence2 TAB label
    qqp     id TAB qid1 TAB qid2 TAB question1 TAB question2 TAB is_duplicate

so that `1 TAB 702876 TAB 702977 TAB He said "no". TAB "No", he said.` of MRPC, its first row, is
TaskRow("0", {"text": 'He said "no".', "text_pair": '"No", he said.'}, "1"). Columns are found by name: KorSTS, KorNLI
and the Portuguese GLUE are read as sts-b, mnli and so on. A row of MNLI with the gold_label `-` has no label that its
annotators agreed on and is skipped with a note, as the authors recommend. The source of a row is CoLA's source, and
the genre of STS-B and MNLI.
"""

from itertools import chain
from typing import BinaryIO

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import Task
from components.task_example_gen.readers.records import (
    Note,
    ReadRows,
    RowError,
    by_name,
    decoded,
    number_of,
    numbered_lines,
    rows_of,
    tab_columns,
)

# Columns of the text, the second text, the label and the id, by task.
_COLUMNS = {
    "cola": ("sentence", "", "label", "index"),
    "sst-2": ("sentence", "", "label", "index"),
    "mrpc": ("#1 String", "#2 String", "Quality", "index"),
    "sts-b": ("sentence1", "sentence2", "score", "index"),
    "mnli": ("sentence1", "sentence2", "gold_label", "index"),
    "qnli": ("question", "sentence", "label", "index"),
    "rte": ("sentence1", "sentence2", "label", "index"),
    "wnli": ("sentence1", "sentence2", "label", "index"),
    "qqp": ("question1", "question2", "is_duplicate", "id"),
}
# Column with the source of a row: CoLA's publication, the genre of the others.
_SOURCES = {"cola": "source", "sts-b": "genre", "mnli": "genre"}
_COLA_HEADER = ["source", "label", "mark", "sentence"]
_NO_GOLD_LABEL = "-"


def read_glue(task: Task, file: BinaryIO, source: str, labelled: bool = False) -> ReadRows:
    """Rows of a GLUE file; InputError, which lists the columns, if the header lacks one."""
    lines = numbered_lines(file)
    if (first := next(lines, None)) is None:
        return
    text, text_pair, label, row_id = _COLUMNS[task.name]
    try:
        header = decoded(first[1]).split("\t")
    except RowError as error:
        raise InputError(f"{source}, {first[0]}: {error}; give the file in UTF-8") from error
    if task.name == "cola" and text not in header:
        header, lines = _COLA_HEADER, chain([first], lines)
    missing = [name for name in (text, text_pair, label if labelled else "") if name and name not in header]
    if missing:
        raise InputError(
            f"{source}, {first[0]}: has no column {missing[0]!r}, but {', '.join(map(repr, header))}; "
            f"give {task.name} in GLUE's format"
        )

    def parse(number: int, content: bytes) -> TaskRow | Note:
        columns = by_name(tab_columns(content, len(header), "the header's"), header)
        if label in columns and task.name == "mnli" and columns[label] == _NO_GOLD_LABEL:
            return Note("", "rows skipped that have no label annotators agreed on ('-')")
        inputs = {"text": columns[text]} | ({"text_pair": columns[text_pair]} if text_pair else {})
        gold = columns.get(label)
        return TaskRow(
            columns.get(row_id) or str(number),
            inputs,
            number_of(gold, label) if gold is not None and task.kind == "regression" else gold,
            columns.get(_SOURCES[task.name], "") if task.name in _SOURCES else "",
        )

    yield from rows_of(lines, parse)
