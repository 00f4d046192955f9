"""Tag files in conlleval's format: a word and its tags per line, a blank line after each sentence."""

import re
from collections.abc import Iterator, Sequence
from typing import TextIO

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow

_TAG = re.compile(r"O|[BIES](-.+)?")
_BLANKS = re.compile(" +")
# CoNLL-2003 begins each document with it; it is not a sentence.
_DOCUMENT = "-DOCSTART-"
# Line (from 1), the columns before the tag, and the tag.
Tagged = tuple[int, list[str], str]


def write_tags(file: TextIO, rows: Sequence[TaskRow], answers: Sequence[list[str]]) -> None:
    """Write `word gold predicted`, or `word predicted` without gold tags."""
    for row, tags in zip(rows, answers, strict=True):
        columns = [_words(row), tags] if row.gold is None else [_words(row), row.gold, tags]
        for cells in zip(*columns, strict=True):
            file.write(" ".join(cells) + "\n")
        file.write("\n")


def read_tags(rows: Sequence[TaskRow], path: str) -> list[list[str]]:
    """Read the last column of each sentence, unchanged; InputError if sentences or words differ from the rows'.

    Entities are the same in IOB1 and IOB2; the accuracy of IOB1 tags differs, because the rows have IOB2.
    """
    sentences = list(_sentences(path))
    for row, sentence in zip(rows, sentences, strict=False):
        words = _words(row)
        for word, (line, columns, tag) in zip(words, sentence, strict=False):
            # A first column may count the words.
            if not any(_is_word(file_word, word) for file_word in columns[: 1 + columns[0].isdecimal()]):
                raise InputError(
                    f"{path}:{line}: the word {columns[0]!r} is {word!r} in the data; predict the same sentences"
                )
            if not _TAG.fullmatch(tag):
                raise InputError(f"{path}:{line}: {tag!r} is not a tag; tags are O, B-TYPE and I-TYPE")
        if len(sentence) != len(words):
            line = sentence[0][0]
            raise InputError(
                f"{path}:{line}: a sentence of {len(sentence)} tags; in the data it has {len(words)} words"
            )
    if len(sentences) != len(rows):
        raise InputError(f"{path}: {len(sentences)} sentences; the data have {len(rows)}")
    return [[tag for _, _, tag in sentence] for sentence in sentences]


def _is_word(file_word: str, word: str) -> bool:
    """Compare with the data's word, which has no white space and no language prefix (`en:Falls`)."""
    file_word = "".join(file_word.split()) or "\ufffd"
    return word in (file_word, file_word.partition(":")[2])


def _words(row: TaskRow) -> list[str]:
    return str(row.inputs["text"]).split(" ")


def _sentences(path: str) -> Iterator[list[Tagged]]:
    sentence: list[Tagged] = []
    # Only a line feed ends a line, as in the data's reader: words may contain carriage returns.
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        for line, text in enumerate(file, 1):
            text = text.strip(" \t\r\n")
            columns = text.split("\t") if "\t" in text else _BLANKS.split(text)
            if columns == [""]:
                if sentence:
                    yield sentence
                sentence = []
            elif len(columns) == 1:
                raise InputError(f"{path}:{line}: has one column; expected a word and, last, its tag")
            elif columns[0] != _DOCUMENT:
                sentence.append((line, columns[:-1], columns[-1]))
    if sentence:
        yield sentence
