"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Corpus = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus",
        metavar="PATH_OR_GLOB",
        help="Text to train on: a file, a folder or a quoted glob, local or gs://; repeatable. "
        "Documents are separated by blank lines; with --set corpus.documents=files each file is one. "
        "Without it: the docstrings of the installed libraries.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.FIELD=VALUE",
        help="Change a setting of the recipe (`bert-tfx recipes RECIPE` lists them); repeatable.",
    ),
]
Vocab = Annotated[
    str | None,
    typer.Option("--vocab", metavar="FILE", help="A vocab.txt to use, instead of one learned from the corpus."),
]
RunDir = Annotated[
    str,
    typer.Option("--run-dir", metavar="DIR", help="Where the run's artifacts, metadata, checkpoints and models live."),
]
DEFAULT_RUN_DIR = "runs/demo"
