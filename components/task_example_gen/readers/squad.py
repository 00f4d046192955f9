"""SQuAD 1.1 and 2.0, and data sets in the same format: TriviaQA (converted), XQuAD, KorQuAD 1.0.

    {"version": "1.1", "data": [{"title": "May", "paragraphs": [{"context": "It was in May.", "qas": [
        {"id": "56be", "question": "When?", "answers": [{"text": "in May", "answer_start": 7}]}]}]}]}

is TaskRow("56be", {"question": "When?", "context": "It was in May."},
           {"answers": [{"text": "in May", "answer_start": 7}]}).

answer_start counts characters. A question of 2.0 with `is_impossible` (true, "true" or 1) has no answers, whatever it
lists; a question without `answers`, or with null, is from a test set. A number as id is its decimal form. An answer
that is not found at its answer_start is a note, and its row is kept: the original's read_squad_examples (run_squad.py)
skips it in training, but scores against it all the same.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import Task
from components.task_example_gen.readers.records import BadRow, LocatedRow, Note, ReadRows, RowError

_TRUTH = {"true": True, "1": True, "false": False, "0": False, "none": False}
NOT_AT_START = "answers that are not found at their answer_start"


def read_squad(task: Task, file: BinaryIO, source: str) -> ReadRows:
    """Questions of a file; those on one article are a group. InputError: it is not JSON, or not in SQuAD's format."""
    try:
        content = json.loads(file.read().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: is not UTF-8 (byte {error.start}); give the official file") from error
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source}, line {error.lineno}, column {error.colno}: is not JSON ({error.msg}); give the official file"
        ) from error
    ids: set[str] = set()
    for group, context, qa, where in _questions(content, source):
        try:
            row = _row(task, context, qa)
            if row.row_id in ids:
                raise RowError("has the id of an earlier question")
        except RowError as error:
            yield BadRow(where, str(error), (context, qa))
            continue
        ids.add(row.row_id)
        for answer in row.gold["answers"] if row.gold else ():
            start, text = answer["answer_start"], answer["text"]
            if start < 0 or context[start : start + len(text)] != text:
                yield Note(where, NOT_AT_START)
        yield LocatedRow(where, row, group)


def _questions(content: Any, source: str) -> Iterator[tuple[str, str, Any, str]]:
    """Yield (article, context, question, location) of each question."""
    place = "data"
    try:
        for number, article in enumerate(content["data"]):
            title = str(article.get("title") or f"article {number}")
            for index, paragraph in enumerate(article["paragraphs"]):
                place = f"{title!r}, paragraph {index}"
                if not isinstance(context := paragraph["context"], str):
                    raise TypeError
                for qa_index, qa in enumerate(paragraph["qas"]):
                    name = qa.get("id") if isinstance(qa, dict) else None
                    # Not grouped by title: XQuAD's articles have none.
                    yield f"{number}", context, qa, f"{place}, question {name or qa_index}"
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{source}, {place}: is not in SQuAD's format, data > paragraphs > context and qas; give the official file"
        ) from error


def _row(task: Task, context: str, qa: Any) -> TaskRow:
    if not isinstance(qa, dict):
        raise RowError(f"is {type(qa).__name__}, not an object")
    row_id: Any = str(qa["id"]) if type(qa.get("id")) is int else qa.get("id")
    for name, value in (("id", row_id), ("question", qa.get("question"))):
        if not isinstance(value, str):
            raise RowError(f"has no text under {name!r}")
    if (impossible := _TRUTH.get(str(qa.get("is_impossible")).lower())) is None:
        raise RowError(f"is_impossible is {qa['is_impossible']!r}, not true or false")
    if impossible and not task.unanswerable:
        raise RowError(f"is unanswerable, which {task.name} does not allow; use squad2.0")
    inputs = {"question": qa["question"], "context": context}
    listed = [] if impossible else qa.get("answers")
    if listed is None:
        return TaskRow(row_id, inputs)
    if not isinstance(listed, list):
        raise RowError(f"'answers' is {type(listed).__name__}, not a list")
    answers = [_answer(answer) for answer in listed]
    if not answers and not task.unanswerable:
        raise RowError("has an empty list of answers")
    return TaskRow(row_id, inputs, {"answers": answers})


def _answer(answer: Any) -> dict[str, Any]:
    try:
        text, start = answer["text"], answer["answer_start"]
    except (TypeError, KeyError) as error:
        raise RowError("an answer is not {'text': ..., 'answer_start': ...}") from error
    if not isinstance(text, str) or not text.strip():
        raise RowError(f"an answer's text is {text!r}")
    if not isinstance(start, int) or isinstance(start, bool):
        raise RowError(f"answer_start is {start!r}, not a whole number")
    return {"text": text, "answer_start": start}
