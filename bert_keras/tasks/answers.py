"""The string format of a served task model's answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_keras.tasks.table import SEPARATOR, Kind

# Texts of an answer of a retrieval, and rows that are computed at once.
NEAREST, _ROWS = 10, 1000


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
    """The `NEAREST` texts with the largest products with each query, the largest first, each text once.

    A row's own text comes after others of exactly its product, so that equal vectors for all texts find nothing.

    Args:
        texts: a text a row, N.
        queries: float [N, H].
        vectors: those of the texts, float [N, H].
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
