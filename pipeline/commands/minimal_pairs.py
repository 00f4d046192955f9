"""`bert-tfx minimal-pairs`: how often a model prefers the grammatical one of two sentences."""

import os
import time
from typing import Annotated, Any, Literal

import typer

from pipeline.commands.options import Cased


def minimal_pairs(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILES...", help="Pairs in BLiMP's or EWoK's JSON lines: files, folders or globs."),
    ],
    model: Annotated[
        str,
        typer.Option(metavar="DIR", help="A pushed version, a folder that `convert` reads, or a run directory."),
    ],
    cased: Cased = None,
    scoring: Annotated[
        Literal["pll", "pll-word", "next-token", "sum"],  # `bert_keras.tasks.sentence_likelihood`
        typer.Option(
            help="pll: each token masked alone; pll-word: with the rest of its word; of a GPT-BERT next-token, "
            "or its sum with pll."
        ),
    ] = "pll",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first pairs of each paradigm.")] = None,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSON with the figures and both log-likelihoods of every pair.")
    ] = None,
) -> None:
    """Print how often a model prefers the grammatical one of two sentences.

    docs/training.md has the columns of FILES, and how each family of models scores a sentence.
    """
    from components.evaluator.minimal_pairs import figures, read_pairs, score_pairs
    from components.io.shards import write_json
    from pipeline.runs.run_dir import serving_dir
    from pipeline.runs.served_versions import served_version

    pairs = read_pairs(files, "FILES", limit)
    served = served_version(serving_dir(model))
    folder = model if served is None else os.path.join(serving_dir(model), str(served))
    start = time.monotonic()
    scores = score_pairs(folder, pairs, scoring, cased)
    seconds = time.monotonic() - start
    summary = figures(pairs, scores)
    _print(summary)
    typer.echo(f"{len(pairs):,} pairs in {seconds:.1f} s; {folder}")
    if output:
        rows = [
            {"where": pair.where, "UID": pair.paradigm, "linguistics_term": pair.phenomenon, "good": good, "bad": bad}
            for pair, (good, bad) in zip(pairs, scores, strict=True)
        ]
        write_json(output, {"model": folder, "scoring": scoring, **summary, "pairs": rows})


def _print(summary: dict[str, Any]) -> None:
    rows = [(name, row) for part in ("paradigms", "phenomena") for name, row in summary[part].items()]
    width = max(len(name) for name, _ in [*rows, ("phenomenon", None)])
    for part, title in (("paradigms", "paradigm"), ("phenomena", "phenomenon")):
        if part == "phenomena" and summary[part].keys() == summary["paradigms"].keys():
            continue
        typer.echo(f"{title:{width}}  {'pairs':>7}  accuracy  95% CI")
        for name, row in summary[part].items():
            typer.echo(_line(name, row, width))
        typer.echo("")
    typer.echo(_line("overall", summary["overall"], width))


def _line(name: str, row: dict[str, Any], width: int) -> str:
    low, high = row["interval"]
    return f"{name:{width}}  {row['pairs']:>7,}  {row['accuracy']:>8.1%}  {low:.1%} to {high:.1%}"
