"""`bert-tfx models`: pushed versions, their lineage, and the versions being served."""

import json
import os
from typing import Annotated, Any, Literal

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import DEFAULT_RUN_DIR, ModelDir
from pipeline.runs.run_dir import serving_dir

app = typer.Typer(help="Pushed versions: list them, choose the served one.", no_args_is_help=True)
LATEST = "latest"
RunDir = Annotated[str, typer.Option("--run-dir", metavar="DIR", help="Run directory; its serving/ has the versions.")]


@app.command("list")
def list_versions(run_dir: RunDir = DEFAULT_RUN_DIR, model_dir: ModelDir = None) -> None:
    """List the pushed versions with their runs, steps and scores.

    Served versions are marked with their label from `promote`, or as the newest.
    """
    from pipeline.runs.served_versions import pushed_versions, read_labels, served_version

    folder = folder_of_versions(run_dir, model_dir)
    labels, served = read_labels(folder), served_version(folder)
    for version in sorted({*pushed_versions(folder), *labels.values()}, reverse=True):
        marks = [label for label, labelled in labels.items() if labelled == version] or ["newest"] * (version == served)
        typer.echo(f"{version}  {', '.join(marks):8}  {_lineage_line(folder, version)}")


@app.command()
def promote(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="A pushed version, or `latest`.")],
    as_label: Annotated[
        Literal["stable", "canary"], typer.Option("--label", help="Label by which clients request it.")
    ] = "stable",
    run_dir: RunDir = DEFAULT_RUN_DIR,
    model_dir: ModelDir = None,
) -> None:
    """Serve a version as `stable`, or as `canary` beside it.

    `latest` removes the labels: the newest version is served. If the folder is moved, promote again.
    """
    from pipeline.runs.served_versions import CANARY, STABLE, pushed_versions, read_labels, write_labels

    folder = folder_of_versions(run_dir, model_dir)
    if version == LATEST:
        if as_label != STABLE:
            raise InputError(f"`{LATEST}` cannot be combined with --label")
        write_labels(folder, {})
        typer.echo("serving the newest version, and each newer one as soon as it is pushed")
        return
    versions, labels = pushed_versions(folder), read_labels(folder)
    if not version.isdecimal() or int(version) not in versions:
        there = ", ".join(map(str, versions)) or "none"
        raise InputError(f"{version}: no such version in {folder}; there are {there}")
    number = int(version)
    if as_label == CANARY and labels.get(STABLE) in (None, number):
        raise InputError(
            f"version {number} cannot be the canary beside itself: promote another version to {STABLE} first"
        )
    labels[as_label] = number
    if labels.get(CANARY) == labels[STABLE]:
        del labels[CANARY]
    write_labels(folder, labels)
    served = ", ".join(f"version {version} as {label}" for label, version in sorted(labels.items(), reverse=True))
    typer.echo(f"serving {served}; a newer one is served once it is promoted")


def folder_of_versions(run_dir: str, model_dir: str | None) -> str:
    """The folder that the options say; InputError if there is none."""
    if not os.path.isdir(folder := model_dir or serving_dir(run_dir)):
        raise InputError(f"{folder}: no such folder; bert-tfx pretrain pushes a model there")
    return folder


def _lineage_line(folder: str, version: int) -> str:
    """The version's lineage as written by `components.pusher.lineage`, or the reason why it is missing."""
    directory = os.path.join(folder, str(version))
    path = os.path.join(directory, "assets.extra", "lineage.json")
    if not os.path.isdir(directory):
        return "deleted"
    try:
        with open(path, encoding="utf-8") as file:
            lineage: dict[str, Any] = json.load(file)
        known = {name: "no score" if score is None else f"{score:.4g}" for name, score in lineage["scores"].items()}
        scores = ", ".join(f"{name} {score}" for name, score in known.items())
        return (
            f"blessed {lineage['blessed']}, pushed {lineage['pushed']}; {lineage['pipeline']} run {lineage['run']}, "
            f"model #{lineage['model']}, {lineage['steps']} steps; {scores}"
        )
    except FileNotFoundError:
        return "no lineage (converted, copied, or pushed by an older bert-tfx)"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{path} is damaged ({type(error).__name__}: {error})"
