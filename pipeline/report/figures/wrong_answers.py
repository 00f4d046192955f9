"""Held-out rows that a model answered wrongly: the input, the correct answer and the model's."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from bert_keras.tasks.metrics.squad import scores_of_answerable, scores_of_answered
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import Task
from pipeline.report.score_format import MINUS

SHOWN = 20
# A longer text is shown without its middle.
MAX_CHARACTERS = 600
# Characters of context on both sides of an answer.
BESIDE = 160
LONGEST_WORD = 20
# Words of a tagged sentence in total, and before its first mistake.
MAX_WORDS, WORDS_BEFORE = 60, 12
# Colours of entity types; with more types, some share a colour.
COLOURS = 6
LEFT_OUT = "…"
NO_ANSWER = "no answer"
_SPAN_NOTES = {("right",): "right", ("wrong",): "model", ("right", "wrong"): "both"}


class Piece(NamedTuple):
    """A part of a text; `mark` holds CSS classes, `note` says in words what they mean."""

    text: str
    mark: str = ""
    note: str = ""


class Field(NamedTuple):
    """A name and its content; `state` is right, wrong or empty."""

    name: str
    pieces: list[Piece]
    state: str = ""


class WrongAnswers(NamedTuple):
    """The number of a model's wrong answers, which of them are shown, and id and fields of each of these rows."""

    headline: str
    note: str
    rows: list[tuple[str, list[Field]]]


def wrong_answers(task: Task, rows: Sequence[TaskRow], answers: Sequence[Any]) -> WrongAnswers:
    """Up to `SHOWN` wrongly answered rows; for a regression those with the largest differences.

    `answers` are as `bert_keras.tasks.submissions.prediction_files.read_written` reads them.
    """
    pairs = list(zip(rows, answers, strict=True))
    if task.kind in ("regression", "similarity"):
        golds = [row.gold for row in rows]
        compared, what = (golds, answers), "answer"
        if task.kind == "similarity":
            compared, what = (rankdata(golds), rankdata(answers)), "rank by cosine"
        far = np.argsort(-np.abs(np.subtract(*compared)), kind="stable")[:SHOWN].tolist()
        farthest = [pairs[number] for number in far]
        note = f"The {len(farthest)} of {len(rows):,} held-out rows whose {what} is farthest from the right one."
        differences = [(row.row_id, _number(row, answer)) for row, answer in farthest]
        return WrongAnswers("Largest differences", note, differences)
    if task.kind == "ranking":
        best: dict[str, float] = {}
        for row, answer in pairs:
            if row.gold[1] > 0:
                best[row.gold[0]] = max(answer, best.get(row.gold[0], answer))
        pairs = [(row, (answer, best[row.gold[0]])) for row, answer in pairs]
    is_wrong, fields = _KINDS[task.kind]
    wrong = [(row, answer) for row, answer in pairs if is_wrong(task, row, answer)]
    # Evenly spaced, for neighbours are alike (questions on one article, sorted labels).
    count = min(SHOWN, len(wrong))
    shown = [wrong[number * len(wrong) // count] for number in range(count)]
    headline = f"Answered wrongly: {len(wrong):,} of {len(rows):,} held-out rows"
    note = f"{len(shown)} of them, evenly over the held-out rows." if len(shown) < len(wrong) else ""
    return WrongAnswers(headline, note, [(row.row_id, fields(task, row, answer)) for row, answer in shown])


def shortened(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Cut the middle out of a text longer than the limit.

    >>> shortened("abcdefghijkl", 8)
    'abcdef … kl'
    """
    head = limit * 3 // 4
    return text if len(text) <= limit else f"{text[:head]} {LEFT_OUT} {text[head - limit :]}"


def _differs(task: Task, row: TaskRow, answer: Any) -> bool:
    return row.gold != answer


def _texts(row: TaskRow) -> list[Field]:
    texts = [str(row.inputs[name]) for name in ("text", "text_pair") if name in row.inputs]
    names = ("Text",) if len(texts) == 1 else ("First text", "Second text")
    return [Field(name, [Piece(shortened(text))]) for name, text in zip(names, texts, strict=True)]


def _answers(right: str, answer: str) -> list[Field]:
    return [
        Field("Right", [Piece(shortened(right))], "right"),
        Field("Model's answer", [Piece(shortened(answer))], "wrong"),
    ]


def _labels(task: Task, row: TaskRow, answer: Sequence[str]) -> list[Field]:
    return [*_texts(row), *_answers(*(", ".join(labels) or "no label" for labels in (row.gold, answer)))]


def _number(row: TaskRow, answer: float) -> list[Field]:
    difference = f"{answer - row.gold:+.2f}".replace("-", MINUS)
    return [*_texts(row), *_answers(f"{row.gold:g}", f"{answer:g} ({difference})")]


def _order(task: Task, row: TaskRow, answer: tuple[float, float]) -> list[Field]:
    number, relevant = (f"{value:.2f}".replace("-", MINUS) for value in answer)
    return [*_texts(row), *_answers(f"below {relevant}, a relevant passage of the query", number)]


def _choice(task: Task, row: TaskRow, answer: int) -> list[Field]:
    choices = row.inputs["choices"]
    others = [choice for number, choice in enumerate(choices) if number not in (row.gold, answer)]
    other_fields = [Field("Other choice", [Piece(shortened(choice))]) for choice in others]
    return [*_texts(row), *_answers(choices[row.gold], choices[answer]), *other_fields]


def _is_inexact(task: Task, row: TaskRow, answer: str | None) -> bool:
    return answer is None or not _of_span(task, row, answer)["exact" if task.unanswerable else "exact_match"]


def _of_span(task: Task, row: TaskRow, answer: str) -> Mapping[str, float]:
    return (scores_of_answerable if task.unanswerable else scores_of_answered)([row.gold], [answer])


def _span(task: Task, row: TaskRow, answer: str | None) -> list[Field]:
    context, text = str(row.inputs["context"]), answer or ""
    golds = list(dict.fromkeys(gold["text"] for gold in row.gold["answers"]))
    places: list[tuple[int, int, str]] = []
    if golds:
        first = row.gold["answers"][0]
        places.append((first["answer_start"], first["answer_start"] + len(first["text"]), "right"))
    # The prediction file has the answer without its position: its nearest occurrence.
    to = places[0][0] if places else 0
    starts = (context.rfind(text, 0, to + len(text)), context.find(text, to)) if text else ()
    if near := sorted((abs(start - to), start) for start in starts if start >= 0):
        places.append((near[0][1], near[0][1] + len(text), "wrong"))
    overlap = f" (F1 {_of_span(task, row, text)['f1']:.0f}%)" if golds and text else ""
    return [
        Field("Question", [Piece(shortened(str(row.inputs["question"])))]),
        Field("Context", _neighbourhood(context, places)),
        *_answers(" / ".join(golds) or NO_ANSWER, f"{text or NO_ANSWER}{overlap}"),
    ]


def _neighbourhood(context: str, places: Sequence[tuple[int, int, str]]) -> list[Piece]:
    """The context around each place, with `LEFT_OUT` in between; overlapping places have the marks of both."""
    shown = [_whole_words(context, start - BESIDE, end + BESIDE) for start, end, _ in sorted(places)]
    pieces: list[Piece] = []
    at = 0
    for window in shown:
        start = max(at, window.start)
        stop = max(start, window.stop)
        if start > at:
            pieces.append(Piece(f" {LEFT_OUT} " if at else f"{LEFT_OUT} "))
        cuts = sorted({start, stop, *(cut for a, b, _ in places for cut in (a, b) if start < cut < stop)})
        for begin, end in itertools.pairwise(cuts):
            marks = [mark for a, b, mark in places if a <= begin < b]
            pieces.append(Piece(shortened(context[begin:end]), " ".join(marks), _SPAN_NOTES.get(tuple(marks), "")))
        at = stop
    return [*pieces, Piece(f" {LEFT_OUT}")] if at < len(context) else pieces


def _whole_words(context: str, start: int, end: int) -> range:
    """The window, extended to a space if one is near."""
    before = context.rfind(" ", max(0, start - LONGEST_WORD), max(0, start))
    after = context.find(" ", end, end + LONGEST_WORD)
    return range(before + 1 if before >= 0 else max(0, start), after if after >= 0 else min(len(context), end))


def _entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    from seqeval.metrics.sequence_labeling import get_entities

    return set(get_entities(list(tags)))


def _tags(task: Task, row: TaskRow, answer: Sequence[str]) -> list[Field]:
    words = str(row.inputs["text"]).split(" ")
    right, predicted = _entities(row.gold), _entities(answer)
    first_mistake = min(start for _, start, _ in right ^ predicted)
    start = max(0, first_mistake - WORDS_BEFORE)
    window = range(start, min(len(words), start + MAX_WORDS))
    types = sorted({label.partition("-")[2] or label for label in task.labels if label != "O"})
    colours = {name: number % COLOURS for number, name in enumerate(types)}
    return [
        Field("Right", _marked(words, window, right, right - predicted, "missed", colours), "right"),
        Field("Model's answer", _marked(words, window, predicted, predicted - right, "wrong", colours), "wrong"),
    ]


def _marked(
    words: Sequence[str],
    window: range,
    entities: set[tuple[str, int, int]],
    mistakes: set[tuple[str, int, int]],
    note: str,
    colours: Mapping[str, int],
) -> list[Piece]:
    """Words with their entities and types; mistakes carry the note."""
    pieces = [Piece(f"{LEFT_OUT} ")] if window.start else []
    at = window.start
    for entity in sorted(entities, key=lambda entity: entity[1:]):
        name, first, last = entity
        first, end = max(first, at), min(last + 1, window.stop)
        if first >= end:
            continue
        if first > at:
            pieces.append(Piece(" ".join(words[at:first]) + " "))
        mark = f"entity colour{colours.get(name, 0)}" + f" {note}" * (entity in mistakes)
        pieces += [
            Piece(" ".join(words[first:end]), mark, f"{name}, {note}" if entity in mistakes else name),
            Piece(" "),
        ]
        at = end
    if at < window.stop:
        pieces.append(Piece(" ".join(words[at : window.stop])))
    return [*pieces, Piece(f" {LEFT_OUT}")] if window.stop < len(words) else pieces


_KINDS: dict[str, tuple[Callable[[Task, TaskRow, Any], bool], Callable[[Task, TaskRow, Any], list[Field]]]] = {
    "classification": (_differs, lambda task, row, answer: [*_texts(row), *_answers(row.gold, answer)]),
    "multi_label": (_differs, _labels),
    "multiple_choice": (_differs, _choice),
    "span": (_is_inexact, _span),
    "ranking": (lambda task, row, answer: row.gold[1] == 0 and answer[0] >= answer[1], _order),
    "retrieval": (
        lambda task, row, answer: answer[0] != row.gold,
        lambda task, row, answer: [*_texts(row)[:1], *_answers(row.gold, answer[0])],
    ),
    "tagging": (lambda task, row, answer: _entities(row.gold) != _entities(answer), _tags),
}
