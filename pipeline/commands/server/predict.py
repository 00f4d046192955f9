"""`bert-tfx predict`: answers of a served, fine-tuned model."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.commands.server.options import ServerOptions, in_batches, line_texts, with_server_options

if TYPE_CHECKING:
    import numpy as np

# Inputs of the served models, by task, in the order of the arguments; the last input takes all remaining ones.
_INPUTS = (("text",), ("text", "text_pair"), ("question", "context"), ("text", "choices"))


@with_server_options
def predict(
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="A text; a text and its pair; a question and its context; a text and its choices. "
            "A single `-`: lines of standard input, with tabs between their texts.",
        ),
    ],
    server: ServerOptions,
) -> None:
    """Print a fine-tuned model's answer to each row as JSON."""
    from serving.models.servable import DEFAULT_SIGNATURE

    with server.client() as client:
        model_inputs = set(client.metadata()[DEFAULT_SIGNATURE].inputs)
        inputs = next((names for names in _INPUTS if set(names) == model_inputs), None)
        if inputs is None:
            raise InputError(
                f"the model at {server.address} takes {', '.join(sorted(model_inputs))}: it is not a fine-tuned model"
            )
        takes = f"the model at {server.address} takes {len(inputs)}: {', '.join(inputs)}"
        for batch in in_batches(_rows(texts, inputs, takes)):
            # All rows of a request need the same number of choices.
            for _, alike in itertools.groupby(batch, key=len):
                columns = list(zip(*alike, strict=True))
                columns_by_input = dict(zip(inputs, map(list, columns), strict=False))
                if "choices" in inputs:
                    columns_by_input["choices"] = [list(choices) for choices in zip(*columns[1:], strict=True)]
                print_answers(client.predict(columns_by_input))


def print_answers(answers: Mapping[str, np.ndarray]) -> None:
    """Print a JSON line per row of a served model's outputs."""
    for row in zip(*answers.values(), strict=True):
        named = {name: _plain(value) for name, value in zip(answers, row, strict=True)}
        typer.echo(json.dumps(named, ensure_ascii=False))


def _rows(texts: list[str], inputs: tuple[str, ...], takes: str) -> Iterator[list[str]]:
    """The texts of each row: the arguments, or the fields of each line of standard input."""
    lines = texts == ["-"]
    for number, fields in enumerate((line.split("\t") for line in line_texts(texts)) if lines else [texts], 1):
        if len(fields) != len(inputs) and not ("choices" in inputs and len(fields) > len(inputs)):
            where = f"standard input, line {number}: " if lines else ""
            raise InputError(f"{where}{len(fields)} text(s) given; {takes}")
        yield fields


def _plain(value: np.ndarray | Any) -> Any:
    """Convert an output of one row to a JSON value."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value
