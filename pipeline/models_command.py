"""`bert-tfx models`: the versions that were pushed, where they come from, and which of them are served."""

from __future__ import annotations

import json
import os
from enum import Enum
from typing import Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.options import DEFAULT_RUN_DIR
from pipeline.run_dir import serving_dir

app = typer.Typer(
    help="The pushed versions: list them, choose which is served, go back to the one before.", no_args_is_help=True
)
LATEST = "latest"
RunDir = Annotated[str, typer.Option("--run-dir", metavar="DIR", help="Whose pushed versions; its serving/.")]
ModelDir = Annotated[
    str | None, typer.Option("--model-dir", metavar="DIR", help="A folder of versions, instead of the run's serving/.")
]


class Label(str, Enum):
    """By which a client may ask for a version."""

    STABLE = "stable"
    CANARY = "canary"


@app.command("list")
def list_versions(run_dir: RunDir = DEFAULT_RUN_DIR, model_dir: ModelDir = None) -> None:
    """Every pushed version, newest first: when it was blessed and pushed, by which run, its steps and scores.

    What is served is marked: by its label, if `promote` gave it one, or else as the newest.
    """
    from pipeline.served_versions import pushed_versions, read_labels, served_version

    folder = _folder(run_dir, model_dir)
    labels, served = read_labels(folder), served_version(folder)
    for version in sorted({*pushed_versions(folder), *labels.values()}, reverse=True):
        marks = [label for label, of in labels.items() if of == version] or ["newest"] * (version == served)
        typer.echo(f"{version}  {', '.join(marks):8}  {_lineage_line(folder, version)}")


@app.command()
def promote(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="One that was pushed, or `latest`.")],
    as_label: Annotated[Label, typer.Option("--label", help="What clients ask for it by.")] = Label.STABLE,
    run_dir: RunDir = DEFAULT_RUN_DIR,
    model_dir: ModelDir = None,
) -> None:
    """Serve a version as `stable` (or as `canary` beside the stable one), until another one is promoted.

    `latest` takes the labels away: the newest version is served again, and each newer one as soon as it is pushed. It
    is written to models.config in the folder of the versions, in the format of TensorFlow Serving, which takes absolute
    paths alone: after the folder is moved, promote again.
    """
    from pipeline.served_versions import CANARY, STABLE, read_labels, write_labels

    folder = _folder(run_dir, model_dir)
    if version == LATEST:
        if as_label is not Label.STABLE:
            raise InputError(f"{LATEST} takes no label: whatever is newest is served to all")
        write_labels(folder, {})
        typer.echo("serving the newest version, and each newer one as soon as it is pushed")
        return
    number = _pushed(folder, version)
    labels = read_labels(folder)
    if as_label is Label.CANARY and labels.get(STABLE) in (None, number):
        raise InputError(
            f"version {number} cannot be the canary of another version: promote that one first, to {STABLE}"
        )
    labels[as_label.value] = number
    if labels.get(CANARY) == labels[STABLE]:
        del labels[CANARY]
    write_labels(folder, labels)
    _tell(labels)


@app.command()
def rollback(run_dir: RunDir = DEFAULT_RUN_DIR, model_dir: ModelDir = None) -> None:
    """Serve the version before the one that is served now, until another one is promoted; nothing is deleted.

    A canary is taken back as well.
    """
    from pipeline.served_versions import STABLE, pushed_versions, served_version, write_labels

    folder = _folder(run_dir, model_dir)
    served = served_version(folder)
    earlier = [version for version in pushed_versions(folder) if version < (served or 0)]
    if not earlier:
        raise InputError(f"{folder}: there is no version before {served}, the one that is served, to go back to")
    labels = {STABLE: earlier[-1]}
    write_labels(folder, labels)
    _tell(labels)


def _tell(labels: dict[str, int]) -> None:
    said = ", ".join(f"version {version} as {label}" for label, version in sorted(labels.items(), reverse=True))
    typer.echo(f"serving {said}; a newer one is served once it is promoted")


def _folder(run_dir: str, model_dir: str | None) -> str:
    folder = model_dir or serving_dir(run_dir)
    if not os.path.isdir(folder):
        raise InputError(f"{folder}: no such folder; bert-tfx pretrain pushes a model there")
    return folder


def _pushed(folder: str, version: str) -> int:
    from pipeline.served_versions import pushed_versions

    versions = pushed_versions(folder)
    if not version.isdecimal() or int(version) not in versions:
        there = ", ".join(map(str, versions)) or "none"
        raise InputError(f"{version}: no such version in {folder}; there are {there}")
    return int(version)


def _lineage_line(folder: str, version: int) -> str:
    """What `components.model_push.lineage` wrote of a version, or why there is nothing."""
    directory = os.path.join(folder, str(version))
    path = os.path.join(directory, "assets.extra", "lineage.json")
    if not os.path.isdir(directory):
        return "is not there any more"
    try:
        with open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
        scores = ", ".join(f"{name} {value:.4g}" for name, value in found["scores"].items())
        return (
            f"blessed {found['blessed']}, pushed {found['pushed']}; {found['pipeline']} run {found['run']}, model "
            f"#{found['model']}, {found['steps']} steps; {scores}"
        )
    except FileNotFoundError:
        return "says nothing of where it comes from (pushed by an older bert-tfx, or copied)"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{path} is damaged ({type(error).__name__}: {error})"
