"""Tags in columns: a word and its tags a line, a blank line after each sentence, as conlleval reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TextIO

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow

_TAG = re.compile(r"O|[BIES](-.+)?")
_BLANKS = re.compile(" +")
# CoNLL-2003 begins each document with it; it is no sentence.
_DOCUMENT = "-DOCSTART-"
# Line (from 1), word and tag.
Tagged = tuple[int, str, str]


def write_tags(file: TextIO, rows: Sequence[TaskRow], answers: Sequence[list[str]]) -> None:
    """Writes `word gold predicted`, or `word predicted` where the gold tags are not known.

    Raises:
        ValueError: not a tag a word.
    """
    for row, tags in zip(rows, answers, strict=True):
        columns = [_words(row), tags] if row.gold is None else [_words(row), row.gold, tags]
        for cells in zip(*columns, strict=True):
            file.write(" ".join(cells) + "\n")
        file.write("\n")


def read_tags(rows: Sequence[TaskRow], path: str) -> list[list[str]]:
    """The last column of each sentence, as it stands there.

    Entities are the same in IOB1 and IOB2; the accuracy of IOB1 tags is not, for the rows have IOB2.

    Raises:
        InputError: other sentences or words than the rows', or what is no tag: names the line.
    """
    sentences = list(_sentences(path))
    for row, sentence in zip(rows, sentences, strict=False):
        words = _words(row)
        for word, (line, given, tag) in zip(words, sentence, strict=False):
            if not _is_word(given, word):
                raise InputError(
                    f"{path}:{line}: the word {given!r} is {word!r} in the data; predict the same sentences"
                )
            if not _TAG.fullmatch(tag):
                raise InputError(f"{path}:{line}: {tag!r} is no tag; there are O, B-TYPE and I-TYPE")
        if len(sentence) != len(words):
            line = sentence[0][0]
            raise InputError(
                f"{path}:{line}: a sentence of {len(sentence)} tags; in the data it has {len(words)} words"
            )
    if len(sentences) != len(rows):
        raise InputError(f"{path}: {len(sentences)} sentences; the data have {len(rows)}")
    return [[tag for _, _, tag in sentence] for sentence in sentences]


def _is_word(given: str, word: str) -> bool:
    """Whether it is the data's word: rows have no white space in words, and no language before them (`en:Falls`)."""
    given = "".join(given.split()) or "\ufffd"
    return word in (given, given.partition(":")[2])


def _words(row: TaskRow) -> list[str]:
    text = row.inputs["text"]
    assert isinstance(text, str)
    return text.split(" ")


def _sentences(path: str) -> Iterator[list[Tagged]]:
    sentence: list[Tagged] = []
    # A line feed alone ends a line, as where the data are read: words may hold carriage returns.
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        for line, text in enumerate(file, 1):
            text = text.strip(" \t\r\n")
            columns = text.split("\t") if "\t" in text else _BLANKS.split(text)
            if columns == [""]:
                if sentence:
                    yield sentence
                sentence = []
            elif len(columns) == 1:
                raise InputError(f"{path}:{line}: has one column; there are a word and, last, its tag")
            elif columns[0] != _DOCUMENT:
                sentence.append((line, columns[0], columns[-1]))
    if sentence:
        yield sentence
