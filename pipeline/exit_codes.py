"""What the exit code of a command says; read by Airflow's Python too, which has no Typer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """Exit codes."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    NOT_BLESSED = 3
    PREEMPTED = 4


def exit_if_refused(summary: Mapping[str, Any]) -> None:
    """Says so, and ends with a code of its own, where the gate refused the model of a run."""
    import typer

    if not summary["blessed"]:
        served = summary["served_version"]
        stays = f"version {served} stays served" if served else "no version is served yet"
        typer.echo(f"bert-tfx: the gate refused this model, nothing was pushed; {stays}", err=True)
        raise typer.Exit(Exit.NOT_BLESSED)
