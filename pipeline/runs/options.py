"""Options of runs that other commands share."""

from __future__ import annotations

import typer

SET_OPTION = typer.Option(
    "--set",
    metavar="SECTION.FIELD=VALUE",
    help="Change a setting (`bert-tfx recipes RECIPE`); repeatable.",
)
VOCAB_OPTION = typer.Option(metavar="FILE", help="A vocab.txt; default: learned from the corpus.")
# The value of --init for the version that the run directory serves.
LATEST = "latest"
INIT_OPTION = typer.Option(
    metavar="DIR",
    help="Initial model: a folder that `convert` reads, or `latest`, the served version.",
)
CASED_OPTION = typer.Option("--cased/--uncased", help="Case of --init's vocabulary, if its files do not say.")
