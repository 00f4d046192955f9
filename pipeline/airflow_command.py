"""`bert-tfx compile airflow`: a pipeline as a DAG of Airflow."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from bert_keras.errors import InputError
from pipeline.airflow_plan import AirflowPlan, TaskSettings, parameter_schemas
from pipeline.options import Corpus, Settings, Vocab
from pipeline.orchestrate_command import (
    Cased,
    Data,
    HeldOut,
    Init,
    MetadataUri,
    Name,
    RecipeOrTask,
    RunDir,
    Test,
    Train,
)
from pipeline.run_request import RunRequest

LOADER_NAME = "bert_tfx_dags.py"
LOADER = '''"""The DAGs of all plans in this folder; Airflow's Python finds the package `pipeline` on its path."""

from pathlib import Path

from pipeline.runners.airflow_runner import dags_below

globals().update(dags_below(Path(__file__).parent))
'''
DEFAULTS = TaskSettings()


def airflow(
    context: typer.Context,
    run_dir: RunDir,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Airflow's folder of DAGs.")],
    recipe: RecipeOrTask = "tiny_cpu",
    corpus: Corpus = None,
    vocab: Vocab = None,
    data: Data = None,
    train: Train = None,
    held_out: HeldOut = None,
    test: Test = None,
    init: Init = None,
    cased: Cased = None,
    settings: Settings = None,
    name: Name = "",
    metadata: MetadataUri = "",
    schedule: Annotated[
        str | None, typer.Option(metavar="CRON", help="When Airflow starts a run by itself; never if not given.")
    ] = None,
    retries: Annotated[int | None, typer.Option(help=f"Of a task ({DEFAULTS.retries}).")] = None,
    timeout_hours: Annotated[float | None, typer.Option(help=f"Of a task ({DEFAULTS.timeout_hours:g}).")] = None,
    training_timeout_hours: Annotated[
        float | None, typer.Option(help=f"Of a task that trains ({DEFAULTS.training_timeout_hours:g}).")
    ] = None,
) -> None:
    """Write a DAG of Airflow into its folder: a plan, NAME.json, and the file that loads all plans.

    What is given here of text, data and settings is what a run takes if its trigger (`--conf`) says nothing else.
    Inputs are looked for when a run starts. Words after `--` go to Beam, as of `compile nodes`.
    docs/orchestration.md says what Airflow needs.
    """
    from pipeline.metadata_store import check_metadata_uri

    given = {"retries": retries, "timeout_hours": timeout_hours, "training_timeout_hours": training_timeout_hours}
    tasks = TaskSettings(**{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]
    request = RunRequest(recipe, os.path.abspath(run_dir), settings=tuple(settings or []), name=name, metadata=metadata)
    request.resolved  # noqa: B018  # a wrong setting is told before TFX is imported
    if metadata:
        check_metadata_uri(metadata)
    parameters = {
        "corpus": _absolute(corpus),
        "vocab": vocab and _absolute([vocab])[0],
        "data": data and _absolute([data])[0],
        "train": _absolute(train),
        "held_out": _absolute(held_out),
        "test": _absolute(test),
        "init": init and _absolute([init])[0],
        "cased": cased,
        "settings": list(settings or []),
    }
    schemas = parameter_schemas(request.pretrains)
    if strange := [key for key, value in parameters.items() if value and key not in schemas]:
        raise InputError(f"{recipe} takes no {', '.join(strange)}; it takes {', '.join(schemas)}")
    from pipeline.orchestrated import graph_of

    plan = AirflowPlan(
        name=request.pipeline_name,
        recipe=recipe,
        pretrains=request.pretrains,
        command=[str(Path(sys.executable).with_name("bert-tfx"))],
        run_dir=request.run_dir,
        metadata=metadata,
        nodes=graph_of(request),
        parameters={key: parameters[key] for key in schemas},
        beam_args=list(context.obj or []),
        schedule=schedule,
        tasks=tasks,
    )
    output.mkdir(parents=True, exist_ok=True)
    (output / LOADER_NAME).write_text(LOADER)
    path = output / f"{plan.name}.json"
    plan.write(path)
    typer.echo(f"{path}: DAG {plan.name}, {len(plan.nodes)} nodes")


def _absolute(paths: list[str] | None) -> list[str]:
    """Tasks run elsewhere; an address stays what it is."""
    return [path if "://" in path else os.path.abspath(path) for path in paths or []]
