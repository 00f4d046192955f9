"""`bert-tfx compile airflow`: compiles a pipeline to an Airflow DAG."""

import os
import sys
import typing
from pathlib import Path
from typing import Annotated, Any

import typer

from bert_keras.data.mixture import split_name
from bert_keras.errors import InputError
from pipeline.commands.compile.nodes import INPUTS, RecipeOrTask, RunDir
from pipeline.commands.options import chosen, with_options
from pipeline.recipes.settings import settings_of
from pipeline.runners.airflow_plan import AirflowPlan, AirflowTaskPolicy, RunParameter
from pipeline.runs.request import LATEST, RunRequest

LOADER_NAME = "bert_tfx_dags.py"
LOADER = '''"""The DAGs of all plans in this folder; Airflow's Python finds the package `pipeline` on its path.

Further arguments of `dags_below` go to each DAG, such as `on_failure_callback`. This file is not written again.
"""

from pathlib import Path

from pipeline.runners.airflow import dags_below

globals().update(dags_below(Path(__file__).parent))
'''
DEFAULTS = AirflowTaskPolicy()
_PATHS = set(INPUTS) - {"cased"}
# What the texts of a run parameter look like: absolute paths, for tasks with other working directories, or URLs.
_PATTERNS = {
    "corpus": "^([a-z][a-z0-9_]*=)?(/|[a-z0-9]+://)",
    "init": f"^(/|[a-z0-9]+://|{LATEST}$)",
    "teacher": "^(/|[a-z0-9]+://)",
    "settings": "^[^=]+=",
}


@with_options(RunRequest, "options", (*INPUTS, "settings", "name", "metadata"))
def airflow(
    context: typer.Context,
    run_dir: RunDir,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Airflow's DAG folder.")],
    options: dict[str, Any],
    recipe: RecipeOrTask = "tiny_cpu",
    schedule: Annotated[
        str | None, typer.Option(metavar="CRON|URI", help="Cron, or the URI of an asset; default: by trigger.")
    ] = None,
    password_connection: Annotated[
        str, typer.Option(metavar="CONN_ID", help="Airflow's connection with ML Metadata's password.")
    ] = "",
    retries: Annotated[int | None, typer.Option(help=f"Retries of a task ({DEFAULTS.retries}).")] = None,
    timeout_hours: Annotated[float | None, typer.Option(help=f"Limit of a task ({DEFAULTS.timeout_hours:g}).")] = None,
    training_timeout_hours: Annotated[
        float | None, typer.Option(help=f"Limit of a training task ({DEFAULTS.training_timeout_hours:g}).")
    ] = None,
    training_pool: Annotated[
        str | None, typer.Option(metavar="POOL", help=f"Airflow's pool of training tasks ({DEFAULTS.training_pool}).")
    ] = None,
) -> None:
    """Write an Airflow DAG: NAME.json and the file that loads it.

    A trigger may override text, data and settings (`--conf`). Words after `--` go to Beam. docs/orchestration.md lists
    what Airflow needs.
    """
    from pipeline.runs.metadata_store import connection_config

    tasks = chosen(AirflowTaskPolicy, context)
    options = {name: _absolute(value) if name in _PATHS else value for name, value in options.items()}
    request = RunRequest(recipe, os.path.abspath(run_dir), **options)
    from pipeline.runs.resolve import without_inputs

    spec = without_inputs(request)  # invalid settings are reported before TFX is imported
    values = settings_of(spec.recipe)
    for name in ("corpus.decontaminate", "gate.minimal_pairs"):
        for file in typing.cast(tuple[str, ...], values.get(name, ())):
            if "://" not in file and not os.path.isabs(file):
                raise InputError(f"--set {name}={file}: give an absolute path; tasks have other working folders")
    known = (*spec.workflow.inputs, "settings")
    if request.metadata:
        connection_config(request.metadata)
    if unknown := [name for name in INPUTS if options[name] and name not in known]:
        raise InputError(f"{recipe} takes no {', '.join(unknown)}; it takes {', '.join(known)}")
    from pipeline.runners.run_steps import graph_of

    plan = AirflowPlan(
        name=spec.request.name,
        recipe=recipe,
        command=[str(Path(sys.executable).with_name("bert-tfx"))],
        run_dir=request.run_dir,
        metadata=request.metadata,
        nodes=graph_of(spec),
        parameters={name: _parameter(name, options[name]) for name in known},
        beam_args=list(context.obj or []),
        schedule=schedule,
        tasks=tasks,
        password_connection=password_connection,
    )
    output.mkdir(parents=True, exist_ok=True)
    if not (output / LOADER_NAME).exists():
        (output / LOADER_NAME).write_text(LOADER)
    path = output / f"{plan.name}.json"
    plan.write(path)
    typer.echo(f"{path}: DAG {plan.name}, {len(plan.nodes)} nodes")


def _parameter(name: str, default: Any) -> RunParameter:
    kind, option = typing.get_args(typing.get_type_hints(RunRequest, include_extras=True)[name])
    texts = {"type": "string", "pattern": _PATTERNS.get(name, "^(/|[a-z0-9]+://)")}
    if typing.get_origin(kind) is tuple:
        schema: dict[str, Any] = {"type": "array", "items": texts}
    else:
        schema = (
            {"type": ["null", "boolean"]} if bool in typing.get_args(kind) else texts | {"type": ["null", "string"]}
        )
    # In an annotation, what typer calls the default is the option's name.
    declared = option.default if isinstance(option.default, str) else f"--{name.replace('_', '-')}"
    return RunParameter(default, declared, schema, option.help)


def _absolute(value: Any) -> Any:
    """Make paths absolute for tasks with other working directories; URLs are unchanged."""
    if isinstance(value, tuple):
        return [f"{name}{'=' * bool(name)}{_absolute(path)}" for name, path in map(split_name, value)]
    return value if value in (None, LATEST) or "://" in value else os.path.abspath(value)
