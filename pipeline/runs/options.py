"""Options of runs that other commands share."""

from __future__ import annotations

import typer

SET_OPTION = typer.Option(
    "--set",
    metavar="SECTION.FIELD=VALUE",
    help="Change a setting that `bert-tfx recipes RECIPE` lists; repeatable.",
)
VOCAB_OPTION = typer.Option(metavar="FILE", help="A vocab.txt; default: learned from the corpus.")
# The value of --init for the version that the run directory serves.
LATEST = "latest"
INIT_OPTION = typer.Option(
    metavar="DIR",
    help="Initial model: a pushed version, a checkpoint that `convert` reads, or `latest`, the served version.",
)
CASED_OPTION = typer.Option(
    "--cased/--uncased", help="Whether --init's vocabulary keeps case, if its files do not say."
)
