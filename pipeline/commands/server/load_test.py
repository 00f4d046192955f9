"""`bert-tfx load-test`: load on a running server, its rate and latencies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.commands.server.options import ServerOptions, with_server_options

if TYPE_CHECKING:
    from serving.client import Client


@with_server_options
def load_test(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help='JSON lines; each is a request: {"text": "..."}, by input.')
    ],
    server: ServerOptions,
    clients: Annotated[int, typer.Option(min=1, help="Clients; each has one request in flight.")] = 16,
    seconds: Annotated[float, typer.Option(min=0, help="Duration.")] = 10.0,
    signature: Annotated[str, typer.Option(help="Signature to call.")] = "serving_default",
) -> None:
    """Send requests to a server; print rate, latencies and errors.

    Run it on another machine than the server's, or on other cores: the clients take some of the time themselves.
    """
    from serving.client import ClientError
    from serving.load import closed_loop, percentile

    failed: Counter[str] = Counter()

    def sender(client: Client) -> Callable[[int], object]:
        client.predict(requests[0], signature)  # connects; raises if no client would be answered

        def send(number: int) -> None:
            try:
                client.predict(requests[number], signature)
            except ClientError as error:
                failed[error.code.name if error.code else str(error)] += 1

        return send

    requests = _requests(file)
    with ExitStack() as stack:
        calls = [sender(stack.enter_context(server.client())) for _ in range(clients)]
        latencies, wall = closed_loop(calls, seconds, len(requests))
    figures = {
        "requests": len(latencies),
        "errors": dict(failed),
        "requests_per_second": round((len(latencies) - failed.total()) / wall, 1),
        **{f"p{of}_ms": round(1000 * percentile(latencies, of), 1) for of in (50, 95, 99)},
    }
    typer.echo(json.dumps(figures))


def _requests(file: str) -> list[dict[str, Any]]:
    """Inputs of one row for each line."""
    try:
        lines = Path(file).read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({error}); give JSON lines") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(f'{file}: has no line, or one that is not an object; give lines such as {{"text": "..."}}')
    return [{name: [value] for name, value in row.items()} for row in rows]
