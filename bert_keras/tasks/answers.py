"""The answers of a served task model as they are written into one string a row, and read again."""

from __future__ import annotations

from typing import Any

from bert_keras.tasks.table import Kind


def parse_answer(kind: Kind, answer: bytes) -> Any:
    """What the `answer` of the signature `evaluate` says, in the form of a row's gold (`bert_keras.tasks.rows`).

    `b"entailment"` -> `"entailment"`, `b"3.79999995"` -> `3.79999995`, `b"2"` -> `2`, `b"O B-person"` ->
    `["O", "B-person"]`; of spans the text, `""` for none.
    """
    text = answer.decode("utf-8", "replace")
    if kind == "regression":
        return float(text)
    if kind == "multiple_choice":
        return int(text)
    return text.split() if kind == "tagging" else text
