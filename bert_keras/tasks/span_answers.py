"""How SQuAD's answers are read off the logits of windows (run_squad.py; FACTS D6).

An answer is the context from the first character of its first piece to the last one of its last piece
(docs/decisions/0010-answers-by-character-offsets.md). Where the original would answer "empty", because no pair of
positions is left, or stop with an error (SQuAD 2.0), there is no answer, "", as if of logits 0.
Shapes: T tokens, W windows of one row, N of all.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task


@dataclasses.dataclass(frozen=True)
class Span:
    """Positions `start` to `end`, both inside, of window `window`; `score` is the sum of its two logits."""

    window: int
    start: int
    end: int
    score: float


def null_score(start_logits, end_logits) -> float:
    """Score of "no answer": start plus end logit of position 0, the least of all windows (FACTS D6).

    Takes float [T], or float [W, T] for the windows of one example.
    """
    start, end = np.asarray(start_logits, "float64"), np.asarray(end_logits, "float64")
    return float((start[..., 0] + end[..., 0]).min())


def n_best_spans(
    start_logits, end_logits, in_document, is_max_context=None, n_best_size: int = 20, max_answer_length: int = 30
) -> list[Span]:
    """The answers of one example that run_squad.py considers, best first (FACTS D6).

    In each window the `n_best_size` best starts are paired with as many best ends, *then* pairs are thrown out: out
    of the document, ends before starts, too long. So there may be none, and a question that draws the best logits
    takes places. Equal scores keep the order of window, start logit, end logit.

    Args:
        start_logits: float [T], or [W, T].
        end_logits: as `start_logits`.
        in_document: bool, as `start_logits`: false at question, special tokens and padding.
        is_max_context: bool, as `start_logits`: whether no other window shows more around the position. Asked of
            starts alone. None if there is one window.
        n_best_size: starts, and ends, that are looked at in a window.
        max_answer_length: pieces of the longest answer.

    Returns:
        All that is left; the original then drops answers of equal text and keeps `n_best_size`.
    """
    starts, ends = (np.atleast_2d(np.asarray(logits, "float64")) for logits in (start_logits, end_logits))
    end_allowed = np.atleast_2d(np.asarray(in_document, bool))
    start_allowed = end_allowed if is_max_context is None else end_allowed & np.asarray(is_max_context, bool)
    spans = []
    for window in range(len(starts)):
        top_starts, top_ends = (np.argsort(-logits[window], kind="stable")[:n_best_size] for logits in (starts, ends))
        top_starts = top_starts[start_allowed[window, top_starts]].tolist()
        top_ends = top_ends[end_allowed[window, top_ends]].tolist()
        spans += [
            Span(window, start, end, float(starts[window, start] + ends[window, end]))
            for start in top_starts
            for end in top_ends
            if 0 <= end - start < max_answer_length
        ]
    return sorted(spans, key=lambda span: -span.score)


def best_span(
    start_logits, end_logits, in_document, is_max_context=None, n_best_size: int = 20, max_answer_length: int = 30
) -> Span | None:
    """The first of `n_best_spans`, which see; None if there is none (SQuAD 1.1: the original answers "empty")."""
    spans = n_best_spans(start_logits, end_logits, in_document, is_max_context, n_best_size, max_answer_length)
    return spans[0] if spans else None


def is_unanswerable(null: float, best: Span | None, threshold: float = 0.0) -> bool:
    """SQuAD 2.0: whether `null_score` is more than `threshold` above the best answer's (paper section 4.3).

    Also true if there is no answer at all, where the original stops with an error (FACTS D6).
    """
    return best is None or null - best.score > threshold


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An answer that was considered: its text ("" is no answer) and its two logits."""

    text: str
    start_logit: float
    end_logit: float


@dataclasses.dataclass(frozen=True)
class SpanAnswer:
    """What is answered to a row.

    Attributes:
        text: "" for no answer.
        start, end: its characters in the context, end exclusive; -1 both for no answer.
        score: sum of the logits of the best answer that is not "", also where "" is answered; 0 if there is none.
        null_score_difference: how much the score of no answer is above that.
        n_best: of different texts, best first, at most `n_best_size` (and no answer, if it is not among them).
    """

    text: str
    start: int
    end: int
    score: float
    null_score_difference: float
    n_best: tuple[Candidate, ...]


def span_answers(
    outputs: Mapping[str, Any], features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[SpanAnswer]:
    """The answers to rows, in order, from `start_logits` and `end_logits`, float [N, T], of the windows of them all.

    Padding takes no place among the best, so that an answer does not depend on T; in the original it may.
    """
    windows, is_input = features.windows, features.arrays["input_mask"] > 0
    starts, ends = (
        np.where(is_input, np.asarray(outputs[name], "float64"), -np.inf) for name in ("start_logits", "end_logits")
    )
    in_document, is_max_context = (shown(is_input.shape[1]) for shown in (windows.in_document, windows.is_max_context))
    of_row = np.searchsorted(features.row_of, np.arange(len(rows) + 1)).tolist()
    answers = []
    for row, of in zip(rows, itertools.starmap(slice, itertools.pairwise(of_row)), strict=True):
        spans = n_best_spans(
            starts[of], ends[of], in_document[of], is_max_context[of], settings.n_best_size, settings.max_answer_length
        )
        characters = (windows.characters(of.start + span.window, span.start, span.end) for span in spans)
        answers.append(_answer(row, spans, characters, starts[of], ends[of], task, settings))
    return answers


def _answer(
    row: TaskRow,
    spans: Sequence[Span],
    characters: Iterable[tuple[int, int]],
    starts: np.ndarray,
    ends: np.ndarray,
    task: Task,
    settings: TaskSettings,
) -> SpanAnswer:
    """The answer to one row, from its spans, best first, their characters, and the logits [W, T] of its windows."""
    null, best = null_score(starts, ends), spans[0] if spans else None
    score = best.score if best else 0.0
    context: Any = row.inputs["context"]
    found: dict[str, tuple[Candidate, tuple[int, int]]] = {}
    for span, (start, end) in zip(spans, characters, strict=False):
        candidate = Candidate(
            context[start:end], float(starts[span.window, span.start]), float(ends[span.window, span.end])
        )
        found.setdefault(candidate.text, (candidate, (start, end)))
        if len(found) == settings.n_best_size:
            break
    n_best = [candidate for candidate, _ in found.values()]
    if task.unanswerable or not n_best:
        n_best = _with_none(n_best, starts[:, 0], ends[:, 0], settings.n_best_size, task.unanswerable)
    if best is None or (task.unanswerable and is_unanswerable(null, best, settings.null_score_diff_threshold)):
        text, (start, end) = "", (-1, -1)
    else:
        text, (start, end) = next((text, place) for text, (_, place) in found.items())
    return SpanAnswer(text, start, end, score, null - score, tuple(n_best))


def _with_none(
    n_best: Sequence[Candidate], starts: np.ndarray, ends: np.ndarray, size: int, unanswerable: bool
) -> list[Candidate]:
    """Puts no answer into its place (behind equals), or after `size` answers; `starts`, `ends` [W] are its logits."""
    if not unanswerable:
        return [Candidate("", 0.0, 0.0)]
    window = int(np.argmin(starts + ends))
    none = Candidate("", float(starts[window]), float(ends[window]))
    better = [c for c in n_best if c.start_logit + c.end_logit >= none.start_logit + none.end_logit][:size]
    return [*better, none, *n_best[len(better) : max(size - 1, len(better))]]


def n_best_predictions(rows: Sequence[TaskRow], answers: Sequence[SpanAnswer]) -> dict[str, list[dict[str, Any]]]:
    """What the original writes to `nbest_predictions.json`: the candidates by row id, best first.

    Each has `text`, `probability` (the softmax over those of the row), `start_logit`, `end_logit`.
    """
    predictions = {}
    for row, answer in zip(rows, answers, strict=True):
        scores = np.array([c.start_logit + c.end_logit for c in answer.n_best])
        odds = np.exp(scores - scores.max())
        predictions[row.row_id] = [
            {
                "text": c.text,
                "probability": float(probability),
                "start_logit": c.start_logit,
                "end_logit": c.end_logit,
            }
            for c, probability in zip(answer.n_best, odds / odds.sum(), strict=True)
        ]
    return predictions


def null_odds(rows: Sequence[TaskRow], answers: Sequence[SpanAnswer]) -> dict[str, float]:
    """What the original writes to `null_odds.json` of SQuAD 2.0: `null_score_difference` by row id."""
    return {row.row_id: answer.null_score_difference for row, answer in zip(rows, answers, strict=True)}
