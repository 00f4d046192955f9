"""CoNLL columns: CoNLL-2003, WNUT17, WikiANN.

One word per line with its tag in the last column, columns separated by tabs or blanks, empty lines between sentences:

    -DOCSTART- -X- -X- O      (a document begins: not a word)

    EU NNP B-NP I-ORG
    rejects VBZ B-VP O
    German JJ B-NP I-MISC

is TaskRow("0", {"text": "EU rejects German"}, ["B-ORG", "O", "B-MISC"]): IOB1, where B- only separates adjacent
entities, is converted to IOB2, where every entity begins with B-; IOB2 is unchanged. conlleval finds the same entities
in both. WNUT17's sentences also end at a line that contains only a tab. A language and a colon before every word of a
file (WikiANN's `en:Falls`) are removed.

A first column that counts the words (CoNLL-X: `1 TAB EU TAB B-ORG`) is left out, with a note. GermEval's lines that
name a sentence's source (`#`, a tab, a URL) are left out, and after them the last column: inner entities, which are
scored apart there.

A text is its words joined by blanks, and splits into the same words: Unicode white space inside a word (as defined by
`str.isspace`, which includes BERT's) is removed; a word of nothing else becomes U+FFFD. A file with one column has no
tags.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from bert_keras.tasks.rows import TaskRow
from components.task_example_gen.readers.records import BOM, BadRow, LocatedRow, Note, ReadRows, RowError, decoded

_DOCUMENT_START = "-DOCSTART-"
_SOURCE = b"#\thttp"
_LANGUAGE = re.compile(r"[a-z]+(?:-[a-z]+)*:")
_TAG = re.compile(r"O|[BI]-\S+")
_BLANKS = b" \t\r\n"
NOTHING = "\ufffd"


class _Line(NamedTuple):
    where: str
    columns: list[str]


def read_conll(file: BinaryIO) -> ReadRows:
    """Sentences of a file; the sentences of one document are a group, if documents are marked."""
    sentences = list(_sentences(file))
    if _is_numbered([[line.columns for line in lines] for _, lines in sentences]):
        sentences = [(n, [line._replace(columns=line.columns[1:]) for line in lines]) for n, lines in sentences]
        yield Note("", "a first column that counts the words, left out")
    prefix = _language([line.columns[0] for _, lines in sentences for line in lines if line.columns])
    for number, (document, lines) in enumerate(sentences):
        try:
            row = _row(str(number), lines, prefix)
        except _WordError as error:
            readable = all(line.columns for line in lines)
            words = " ".join(line.columns[0].removeprefix(prefix) for line in lines) if readable else None
            yield BadRow(error.where, str(error), words)
        else:
            yield LocatedRow(lines[0].where, row, f"document {document}" if document else "")


class _WordError(RowError):
    def __init__(self, where: str, why: str):
        super().__init__(why)
        self.where = where


def _sentences(file: BinaryIO) -> Iterator[tuple[int, list[_Line]]]:
    """Yield (number of the document, from 1, or 0 if none is marked; lines of words) of each sentence."""
    document, kept = 0, None
    lines: list[_Line] = []
    for number, raw in enumerate(iter(file.readline, b""), 1):
        content = raw.removeprefix(BOM).strip(b"\r\n") if number == 1 else raw.strip(b"\r\n")
        if content.startswith(_SOURCE):
            kept = 3  # without inner entities
            continue
        starts_document = content.startswith(_DOCUMENT_START.encode())
        if content.strip(_BLANKS) and not starts_document:
            lines.append(_Line(f"line {number}", _columns(content)[:kept]))
            continue
        if lines:
            yield document, lines
            lines = []
        document += starts_document
    if lines:
        yield document, lines


def _columns(content: bytes) -> list[str]:
    """Columns of a line; [] if it is not UTF-8."""
    try:
        text = decoded(content)
    except RowError:
        return []
    # Not at any white space, which a word may contain.
    return text.split("\t") if "\t" in text else re.split(" +", text.strip(" "))


def _is_numbered(sentences: list[list[list[str]]]) -> bool:
    """Tell if the first of three columns or more counts the words, in each sentence or through the file."""
    several = False
    for columns in sentences:
        numbers = [int(first[0]) for first in columns if len(first) > 2 and first[0].isdecimal()]
        if len(numbers) < len(columns) or numbers != [*range(numbers[0], numbers[0] + len(numbers))]:
            return False
        several = several or len(numbers) > 1
    return several


def _language(words: list[str]) -> str:
    """Prefix of every word of the file, a language and a colon; "" if there is none."""
    match = _LANGUAGE.match(words[0]) if words else None
    return match[0] if match and all(word.startswith(match[0]) for word in words) else ""


def _row(row_id: str, lines: list[_Line], prefix: str) -> TaskRow:
    words, tags = [], []
    for where, columns in lines:
        if not columns:
            raise _WordError(where, "is not UTF-8")
        if len(columns) != len(lines[0].columns):
            raise _WordError(where, f"has {len(columns)} column(s), not its sentence's {len(lines[0].columns)}")
        words.append("".join(columns[0].removeprefix(prefix).split()) or NOTHING)
        if len(columns) > 1:
            if not _TAG.fullmatch(columns[-1]):
                raise _WordError(where, f"tag {columns[-1]!r} is not O, B-TYPE or I-TYPE (IOB1 or IOB2)")
            tags.append(columns[-1])
    return TaskRow(row_id, {"text": " ".join(words)}, to_iob2(tags) if tags else None)


def to_iob2(tags: list[str]) -> list[str]:
    """IOB1 or IOB2 to IOB2, as conlleval reads them: I-ORG O I-PER B-PER I-LOC -> B-ORG O B-PER B-PER B-LOC"""
    pairs = zip(["O", *tags[:-1]], tags, strict=True)
    return [f"B{tag[1:]}" if tag.startswith("I-") and before[2:] != tag[2:] else tag for before, tag in pairs]
