"""The string format of a served task model's answers."""

from __future__ import annotations

from typing import Any

from bert_keras.tasks.table import Kind


def parse_answer(kind: Kind, answer: bytes) -> Any:
    """Parse the `answer` of the signature `evaluate` into the form of a row's gold (`bert_keras.tasks.rows`).

    `b"entailment"` -> `"entailment"`, `b"3.79999995"` -> `3.79999995`, `b"2"` -> `2`, `b"O B-person"` ->
    `["O", "B-person"]`; for spans the text, `""` for no answer.
    """
    text = answer.decode("utf-8", "replace")
    if kind == "regression":
        return float(text)
    if kind == "multiple_choice":
        return int(text)
    return text.split() if kind == "tagging" else text
