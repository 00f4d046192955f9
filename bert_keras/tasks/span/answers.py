"""Answers to SQuAD's questions from the logits of windows (run_squad.py, `write_predictions`).

An answer is the context from the first character of its first token to the last character of its last token
(docs/decisions/0010-answers-by-character-offsets.md). If no pair of positions is left, where the original answers
"empty" or fails (SQuAD 2.0), there is no answer, "", with logits 0.
Shapes: T tokens, W windows of one row, N windows of all rows.
"""

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
    """Score of "no answer": start plus end logit of position 0, the minimum over all windows.

    Takes float [T], or float [W, T] for the windows of one example.
    """
    start, end = np.asarray(start_logits, "float64"), np.asarray(end_logits, "float64")
    return float((start[..., 0] + end[..., 0]).min())


def n_best_spans(
    start_logits, end_logits, in_document, is_max_context=None, n_best_size: int = 20, max_answer_length: int = 30
) -> list[Span]:
    """The candidate answers of one example, best first (run_squad.py, `write_predictions`).

    In each window the `n_best_size` best starts are paired with as many best ends, and *then* invalid pairs are
    dropped: outside the document, end before start, too long. So there may be none, and good logits in the question
    use up places. Equal scores keep the order of window, start logit, end logit.

    Args:
        start_logits: float [T], or [W, T].
        end_logits: as `start_logits`.
        in_document: bool, as `start_logits`: false at question, special tokens and padding.
        is_max_context: bool, as `start_logits`: no other window has more context around the position. Applies to
            starts only. None for a single window.
        n_best_size: number of starts, and of ends, considered per window.
        max_answer_length: maximum number of tokens of an answer.

    Returns:
        All valid pairs; the original then drops answers of equal text and keeps `n_best_size`.
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


def is_unanswerable(null: float, best: Span | None, threshold: float = 0.0) -> bool:
    """SQuAD 2.0: whether `null_score` exceeds the best answer's score by more than `threshold` (paper section 4.3).

    Also true without any candidate, where run_squad.py fails.
    """
    return best is None or null - best.score > threshold


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A candidate answer: its text ("" is no answer) and its two logits."""

    text: str
    start_logit: float
    end_logit: float


@dataclasses.dataclass(frozen=True)
class SpanAnswer:
    """The answer to a row: `text`, "" for none, at the characters `start` to `end` (exclusive), -1 for none."""

    text: str
    start: int
    end: int
    score: float  # sum of the logits of the best answer other than "", even if the answer is ""; 0 if there is none
    null_score_difference: float  # the score of no answer minus `score`
    n_best: tuple[Candidate, ...]  # of different texts, best first, at most `n_best_size` (plus no answer)


def span_answers(
    outputs: Mapping[str, Any], features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[SpanAnswer]:
    """The answers to rows, in order, from `start_logits` and `end_logits`, float [N, T], of all their windows.

    Padding is never a candidate, so that an answer does not depend on T; in the original it may be one.
    """
    windows, is_input = features.windows, features.arrays["input_mask"] > 0
    starts, ends = (
        np.where(is_input, np.asarray(outputs[name], "float64"), -np.inf) for name in ("start_logits", "end_logits")
    )
    in_document, is_max_context = (shown(is_input.shape[1]) for shown in (windows.in_document, windows.is_max_context))
    row_splits = np.searchsorted(features.row_of, np.arange(len(rows) + 1)).tolist()
    answers = []
    for row, part in zip(rows, itertools.starmap(slice, itertools.pairwise(row_splits)), strict=True):
        spans = n_best_spans(
            starts[part],
            ends[part],
            in_document[part],
            is_max_context[part],
            settings.n_best_size,
            settings.max_answer_length,
        )
        characters = (windows.characters(part.start + span.window, span.start, span.end) for span in spans)
        answers.append(_answer(row, spans, characters, starts[part], ends[part], task, settings))
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
    candidates: dict[str, tuple[Candidate, tuple[int, int]]] = {}
    for span, (start, end) in zip(spans, characters, strict=False):
        candidate = Candidate(
            context[start:end], float(starts[span.window, span.start]), float(ends[span.window, span.end])
        )
        candidates.setdefault(candidate.text, (candidate, (start, end)))
        if len(candidates) == settings.n_best_size:
            break
    n_best = [candidate for candidate, _ in candidates.values()]
    if task.unanswerable or not n_best:
        n_best = _with_none(n_best, starts[:, 0], ends[:, 0], settings.n_best_size, task.unanswerable)
    if best is None or (task.unanswerable and is_unanswerable(null, best, settings.null_score_diff_threshold)):
        text, (start, end) = "", (-1, -1)
    else:
        text, (start, end) = next((text, place) for text, (_, place) in candidates.items())
    return SpanAnswer(text, start, end, score, null - score, tuple(n_best))


def _with_none(
    n_best: Sequence[Candidate], starts: np.ndarray, ends: np.ndarray, size: int, unanswerable: bool
) -> list[Candidate]:
    """Insert "no answer" by score (after equal ones), or after `size` answers; `starts`, `ends` [W] are its logits."""
    if not unanswerable:
        return [Candidate("", 0.0, 0.0)]
    window = int(np.argmin(starts + ends))
    none = Candidate("", float(starts[window]), float(ends[window]))
    better = [c for c in n_best if c.start_logit + c.end_logit >= none.start_logit + none.end_logit][:size]
    return [*better, none, *n_best[len(better) : max(size - 1, len(better))]]


def n_best_predictions(rows: Sequence[TaskRow], answers: Sequence[SpanAnswer]) -> dict[str, list[dict[str, Any]]]:
    """The original's `nbest_predictions.json`: the candidates by row id, best first.

    Each has `text`, `probability` (softmax over the row's candidates), `start_logit`, `end_logit`.
    """
    predictions = {}
    for row, answer in zip(rows, answers, strict=True):
        scores = np.array([c.start_logit + c.end_logit for c in answer.n_best])
        odds = np.exp(scores - scores.max())
        predictions[row.row_id] = [
            {"text": c.text, "probability": float(probability), "start_logit": c.start_logit, "end_logit": c.end_logit}
            for c, probability in zip(answer.n_best, odds / odds.sum(), strict=True)
        ]
    return predictions
