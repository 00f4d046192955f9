"""`bert-tfx predict`: what a served, fine-tuned model says of a text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.asked_server import AskedServer, asks_server

if TYPE_CHECKING:
    import numpy as np

# The inputs of the served models, by task, and what is typed for each; the last one takes all that is left.
_INPUTS = (("text",), ("text", "text_pair"), ("question", "context"), ("text", "choices"))


@asks_server
def predict(
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...", help="A text; a text and its pair; a question and its context; a text and its choices."
        ),
    ],
    server: AskedServer,
) -> None:
    """The answer of a served, fine-tuned model to one row of its task, as a line of JSON."""
    from serving.servable import DEFAULT_SIGNATURE

    with server.client() as client:
        asked = set(client.metadata()[DEFAULT_SIGNATURE].inputs)
        inputs = next((names for names in _INPUTS if set(names) == asked), None)
        if inputs is None:
            takes = ", ".join(sorted(asked))
            raise InputError(f"the model at {server.address} takes {takes}: it is not a fine-tuned one")
        row: dict[str, Any] = dict(zip(inputs, texts, strict=False))
        if "choices" in inputs:
            row["choices"] = texts[1:]
        elif len(texts) != len(inputs):
            raise InputError(
                f"{len(texts)} text(s) given; the model at {server.address} takes {len(inputs)}: {', '.join(inputs)}"
            )
        answer = client.predict({name: [value] for name, value in row.items()})
    typer.echo(json.dumps({name: _plain(value[0]) for name, value in answer.items()}, ensure_ascii=False))


def _plain(value: np.ndarray | Any) -> Any:
    """An output of one row, as JSON has it."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value
