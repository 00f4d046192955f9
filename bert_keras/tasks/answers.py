"""Answers of task models in NumPy: from a model's outputs to those of its signature, to golds, and as strings.

Shapes: N rows, C choices, T tokens, W words of the longest row, H hidden.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span.answers import span_answers
from bert_keras.tasks.table import SEPARATOR, Kind, Task

# Tag of a word that is no part of an entity.
OUTSIDE = "O"
# Texts of an answer of a retrieval, and rows that are computed at once.
NEAREST, _ROWS = 10, 1000


def served_answers(
    outputs: Any, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> dict[str, np.ndarray]:
    """The outputs of the signature `serving_default` (`bert_keras.saved_model.task_signatures`), strings as bytes.

    Of tags those that need no raw text: `tags` and `scores` [N, W] of words separated by blanks. `outputs`: the model's
    for `features`, float32 [N, ...]; of spans a dict.
    """
    if task.kind == "span":
        spans = span_answers(outputs, features, rows, task, settings)
        types = {"score": np.float32, "null_score_difference": np.float32, "start": np.int64, "end": np.int64}
        numbers = {name: np.array([getattr(span, name) for span in spans], type_) for name, type_ in types.items()}
        return {"answer": _bytes([span.text for span in spans]), **numbers}
    if task.answer_kind == "regression":
        return {"score": outputs}
    if task.kind == "multiple_choice":
        return {"choice": np.argmax(outputs, axis=-1), "scores": softmax(outputs)}
    labels = _bytes(task.labels)
    if task.kind == "tagging":
        texts = [str(row.inputs["text"]) for row in rows]
        counts = np.array([text.count(" ") + 1 if text else 0 for text in texts], np.int64)
        is_word = np.arange(counts.max(initial=0)) < counts[:, None]
        tags, scores = np.where(is_word, OUTSIDE.encode(), b"").astype(object), np.zeros(is_word.shape, np.float32)
        place = np.nonzero(features.windows >= 0)
        word, odds = (place[0], features.windows[place]), softmax(outputs[place])
        tags[word], scores[word] = labels[np.argmax(odds, axis=-1)], odds.max(axis=-1)
        return {"tags": tags, "scores": scores}
    return {
        "label": labels[np.argmax(outputs, axis=-1)],
        "labels": np.tile(labels, (len(outputs), 1)),
        # A sigmoid by tanh never overflows.
        "scores": 0.5 + 0.5 * np.tanh(0.5 * outputs) if task.kind == "multi_label" else softmax(outputs),
    }


def task_answers(
    outputs: Any, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[Any]:
    """The answers to rows in the form of their golds (`bert_keras.tasks.rows`); see `served_answers`.

    `outputs` of a similarity and a retrieval are the vectors [N, C, H]: the cosine of a row's first two, the nearest of
    all rows' positives.
    """
    if task.kind == "retrieval":
        return nearest_texts([str(row.inputs["text_pair"]) for row in rows], outputs[:, 0], outputs[:, 1])
    if task.kind == "similarity":
        return np.sum(outputs[:, 0] * outputs[:, 1], axis=-1).tolist()
    return golds_of(task, served_answers(outputs, features, rows, task, settings))


def golds_of(task: Task, answers: dict[str, np.ndarray]) -> list[Any]:
    """Answers of `serving_default` in the form of golds."""
    if task.kind == "multi_label":
        pairs = zip(answers["labels"], answers["scores"], strict=True)
        return [[label.decode() for label in labels[scores >= 0.5]] for labels, scores in pairs]
    name = next(name for name in ("answer", "label", "score", "choice", "tags") if name in answers)
    if name == "tags":
        return [[tag.decode() for tag in tags if tag] for tags in answers[name]]
    return [value.decode() if isinstance(value, bytes) else value for value in answers[name].tolist()]


def write_answer(kind: Kind, answer: Any) -> bytes:
    """The output `answer` of the signature `evaluate`: the inverse of `parse_answer`."""
    if isinstance(answer, list):
        answer = (" " if kind == "tagging" else SEPARATOR).join(answer)
    # Nine digits distinguish any two float32 values.
    return (f"{answer:.9g}" if isinstance(answer, float) else str(answer)).encode()


def parse_answer(kind: Kind, answer: bytes) -> Any:
    """Parse the `answer` of the signature `evaluate` into the form of a row's gold (`bert_keras.tasks.rows`).

    `b"entailment"` -> `"entailment"`, `b"3.79999995"` -> `3.79999995`, `b"2"` -> `2`, `b"O B-person"` ->
    `["O", "B-person"]`, `b"joy|surprise"` -> `["joy", "surprise"]`; for spans the text, `""` for no answer.
    """
    text = answer.decode("utf-8", "replace")
    if kind in ("regression", "ranking", "similarity"):
        return float(text)
    if kind == "multiple_choice":
        return int(text)
    if kind == "multi_label":
        return text.split(SEPARATOR) if text else []
    return text.split() if kind == "tagging" else text


def parse_answers(kind: Kind, golds: Sequence[Any], answers: Sequence[bytes]) -> list[Any]:
    """Parse the answers to all rows; of a retrieval they are two vectors a row, float32 [2, H], as bytes."""
    if kind != "retrieval":
        return [parse_answer(kind, answer) for answer in answers]
    vectors = np.stack([np.frombuffer(answer, "<f4").reshape(2, -1) for answer in answers])
    return nearest_texts(golds, vectors[:, 0], vectors[:, 1])


def nearest_texts(texts: Sequence[str], queries: np.ndarray, vectors: np.ndarray) -> list[list[str]]:
    """The `NEAREST` of N texts with the largest products with each query, the largest first, each text once.

    A row's own text comes after others of exactly its product, so that equal vectors for all texts find nothing.

    `queries`, and the `vectors` of the texts: float [N, H].
    """
    first: dict[str, int] = {}
    place_of_row = np.array([first.setdefault(text, len(first)) for text in texts])
    distinct, nearest = list(first), []
    candidates = vectors[np.unique(place_of_row, return_index=True)[1]].T  # [H, distinct]
    for start in range(0, len(place_of_row), _ROWS):
        products = queries[start : start + _ROWS] @ candidates
        rows, places = np.arange(len(products)), place_of_row[start : start + _ROWS]
        products[rows, places] = np.nextafter(products[rows, places], np.float32(-np.inf))
        order = np.argsort(-products, axis=1, kind="stable")[:, :NEAREST]
        nearest += [[distinct[place] for place in row] for row in order.tolist()]
    return nearest


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf))
    return odds / odds.sum(axis=-1, keepdims=True)


def _bytes(texts: Sequence[str]) -> np.ndarray:
    return np.array([text.encode() for text in texts], object)
