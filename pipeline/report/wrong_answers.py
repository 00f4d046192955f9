"""Held-out rows that a model answered wrongly, to be read by people: what was asked, what is right, what it said."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.squad_scores import scores_of_answerable, scores_of_answered
from bert_keras.tasks.table import Task
from pipeline.report.score_forms import MINUS

SHOWN = 20
# Of a text; the middle of a longer one is left out.
MOST_CHARACTERS = 600
# Of a context on both sides of an answer.
BESIDE = 160
LONGEST_WORD = 20
# Of a tagged sentence, and before its first mistake.
MOST_WORDS, WORDS_BEFORE = 60, 12
# Colours of types of entities; more types share them.
COLOURS = 6
LEFT_OUT = "…"
NO_ANSWER = "no answer"


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a text; `mark` are classes of the page's style sheet, `note` says in words what they mean."""

    text: str
    mark: str = ""
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Field:
    """A name and what is under it; `state` is right, wrong or neither."""

    name: str
    pieces: list[Piece]
    state: str = ""


@dataclasses.dataclass(frozen=True)
class WrongAnswers:
    """What the page shows.

    Attributes:
        headline: how many there are.
        told: which of them are shown.
        rows: the row's id and its fields.
    """

    headline: str
    told: str
    rows: list[tuple[str, list[Field]]]


def wrong_answers(task: Task, rows: Sequence[TaskRow], answers: Sequence[Any]) -> WrongAnswers:
    """Up to `SHOWN` of the rows that are answered wrongly; of a regression those that are farthest off.

    Args:
        task: with its labels.
        rows: with golds.
        answers: in their order, as `bert_keras.tasks.predictions.read_written` reads them.
    """
    pairs = list(zip(rows, answers, strict=True))
    if task.kind == "regression":
        farthest = sorted(pairs, key=lambda pair: -abs(pair[1] - pair[0].gold))[:SHOWN]
        told = f"The {len(farthest)} of {len(rows):,} held-out rows whose answer is farthest from the right one."
        return WrongAnswers("Largest differences", told, [(row.row_id, _number(row, said)) for row, said in farthest])
    is_wrong, fields = _KINDS[task.kind]
    wrong = [(row, said) for row, said in pairs if is_wrong(task, row, said)]
    shown = _evenly(wrong)
    headline = f"Answered wrongly: {len(wrong):,} of {len(rows):,} held-out rows"
    told = f"{len(shown)} of them, evenly over the held-out rows." if len(shown) < len(wrong) else ""
    return WrongAnswers(headline, told, [(row.row_id, fields(task, row, said)) for row, said in shown])


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """A text without its middle, if it is longer.

    >>> shortened("abcdefghijkl", 8)
    'abcdef … kl'
    """
    head = most * 3 // 4
    return text if len(text) <= most else f"{text[:head]} {LEFT_OUT} {text[head - most :]}"


def _evenly(wrong: Sequence[Any]) -> list[Any]:
    """Neighbours are alike (questions of one article, labels that are sorted), so not the first ones."""
    shown = min(SHOWN, len(wrong))
    return [wrong[number * len(wrong) // shown] for number in range(shown)]


def _differs(task: Task, row: TaskRow, answer: Any) -> bool:
    return row.gold != answer


def _texts(row: TaskRow) -> list[Field]:
    texts = [str(row.inputs[name]) for name in ("text", "text_pair") if name in row.inputs]
    names = ("Text",) if len(texts) == 1 else ("First text", "Second text")
    return [Field(name, [Piece(shortened(text))]) for name, text in zip(names, texts, strict=True)]


def _answers(right: str, said: str) -> list[Field]:
    return [
        Field("Right", [Piece(shortened(right))], "right"),
        Field("Model's answer", [Piece(shortened(said))], "wrong"),
    ]


def _label(task: Task, row: TaskRow, answer: str) -> list[Field]:
    return [*_texts(row), *_answers(row.gold, answer)]


def _number(row: TaskRow, answer: float) -> list[Field]:
    difference = f"{answer - row.gold:+.2f}".replace("-", MINUS)
    return [*_texts(row), *_answers(f"{row.gold:g}", f"{answer:g} ({difference})")]


def _choice(task: Task, row: TaskRow, answer: int) -> list[Field]:
    choices = row.inputs["choices"]
    others = [choice for number, choice in enumerate(choices) if number not in (row.gold, answer)]
    other_fields = [Field("Other choice", [Piece(shortened(choice))]) for choice in others]
    return [*_texts(row), *_answers(choices[row.gold], choices[answer]), *other_fields]


def _is_inexact(task: Task, row: TaskRow, answer: str | None) -> bool:
    if answer is None:
        return True
    scores = _of_span(task, row, answer)
    return not scores["exact" if task.unanswerable else "exact_match"]


def _of_span(task: Task, row: TaskRow, answer: str) -> Mapping[str, float]:
    return (scores_of_answerable if task.unanswerable else scores_of_answered)([row.gold], [answer])


def _span(task: Task, row: TaskRow, answer: str | None) -> list[Field]:
    context, said = str(row.inputs["context"]), answer or ""
    golds = list(dict.fromkeys(given["text"] for given in row.gold["answers"]))
    places: list[tuple[int, int, str]] = []
    if golds:
        first = row.gold["answers"][0]
        places.append((first["answer_start"], first["answer_start"] + len(first["text"]), "right"))
    start = _nearest(context, said, places[0][0] if places else 0)
    if start is not None:
        places.append((start, start + len(said), "wrong"))
    overlap = f" (F1 {_of_span(task, row, said)['f1']:.0f}%)" if golds and said else ""
    return [
        Field("Question", [Piece(shortened(str(row.inputs["question"])))]),
        Field("Context", _neighbourhood(context, places)),
        *_answers(" / ".join(golds) or NO_ANSWER, f"{said or NO_ANSWER}{overlap}"),
    ]


def _nearest(text: str, part: str, to: int) -> int | None:
    """Where a part stands in a text, of several places the nearest to `to`; the model says only the words."""
    if not part:
        return None
    starts = (text.rfind(part, 0, to + len(part)), text.find(part, to))
    return min((start for start in starts if start >= 0), key=lambda start: abs(start - to), default=None)


def _neighbourhood(context: str, places: Sequence[tuple[int, int, str]]) -> list[Piece]:
    """The context about each place, `LEFT_OUT` between; a part that two places cover has the marks of both."""
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
    """The window, and as much more as ends at a blank, if there is one near."""
    before = context.rfind(" ", max(0, start - LONGEST_WORD), max(0, start))
    after = context.find(" ", end, end + LONGEST_WORD)
    return range(before + 1 if before >= 0 else max(0, start), after if after >= 0 else min(len(context), end))


_SPAN_NOTES = {("right",): "right", ("wrong",): "model", ("right", "wrong"): "both"}


def _entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Type, first and last word, as the score counts them."""
    from seqeval.metrics.sequence_labeling import get_entities

    return set(get_entities(list(tags)))


def _has_other_entities(task: Task, row: TaskRow, answer: Sequence[str]) -> bool:
    return row.gold != answer and _entities(row.gold) != _entities(answer)


def _tags(task: Task, row: TaskRow, answer: Sequence[str]) -> list[Field]:
    words = str(row.inputs["text"]).split(" ")
    right, said = _entities(row.gold), _entities(answer)
    first_mistake = min(start for _, start, _ in right ^ said)
    start = max(0, first_mistake - WORDS_BEFORE)
    window = range(start, min(len(words), start + MOST_WORDS))
    colours = {name: number % COLOURS for number, name in enumerate(_types(task))}
    return [
        Field("Right", _marked(words, window, right, right - said, "missed", colours), "right"),
        Field("Model's answer", _marked(words, window, said, said - right, "wrong", colours), "wrong"),
    ]


def _types(task: Task) -> list[str]:
    return sorted({label.partition("-")[2] or label for label in task.labels if label != "O"})


def _marked(
    words: Sequence[str],
    window: range,
    entities: set[tuple[str, int, int]],
    mistakes: set[tuple[str, int, int]],
    note: str,
    colours: Mapping[str, int],
) -> list[Piece]:
    """Words with their entities, each with its type, and the note where it is a mistake."""
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
    "classification": (_differs, _label),
    "multiple_choice": (_differs, _choice),
    "span": (_is_inexact, _span),
    "tagging": (_has_other_entities, _tags),
}
