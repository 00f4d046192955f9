"""Options of runs that other commands share."""

from __future__ import annotations

import typer

SET_OPTION = typer.Option(
    "--set",
    metavar="SECTION.FIELD=VALUE",
    help="Change a setting of the recipe (`bert-tfx recipes RECIPE` lists them); repeatable.",
)
VOCAB_OPTION = typer.Option(metavar="FILE", help="A vocab.txt to use, in place of learning one from the corpus.")
# The value of --init for the version that the run directory serves.
LATEST = "latest"
INIT_OPTION = typer.Option(
    metavar="DIR",
    help="The initial model: a pushed version, or a checkpoint that `bert-tfx convert` reads; `latest`: the version "
    "that the run directory serves.",
)
CASED_OPTION = typer.Option(
    "--cased/--uncased", help="Whether the vocabulary of --init keeps case, if --init does not say."
)
