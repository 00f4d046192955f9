"""Commands for orchestrators: `bert-tfx compile nodes`, `bert-tfx run-node` for each node, `bert-tfx finish`."""

import json
import logging
import os
import sys
from typing import Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import with_options
from pipeline.runs.exit_codes import exit_if_refused
from pipeline.runs.request import FINETUNE, PRETRAIN, RunRequest
from pipeline.runs.run_dir import temporary_run_dir
from pipeline.stages import MODEL_PUSH

compile_app = typer.Typer(help="Compile a pipeline for an orchestrator.", no_args_is_help=True)

RecipeOrTask = Annotated[str, typer.Argument(metavar="RECIPE_OR_TASK", help="From `bert-tfx recipes` or `tasks`.")]
RunDir = Annotated[str, typer.Option("--run-dir", metavar="DIR", help="A folder shared by all steps of the run.")]
RunId = Annotated[str, typer.Option("--run-id", metavar="ID", help="Id of the run, equal for all its steps.")]
_JSON = "Values of --{} as a JSON list, put before the others."
# Inputs of all workflows.
INPUTS = (*PRETRAIN.inputs, *FINETUNE.inputs)


@compile_app.command("nodes")
@with_options(RunRequest, "options", (*INPUTS, "settings", "name", "metadata"))
def compile_nodes(
    context: typer.Context,
    run_dir: RunDir,
    run_id: RunId,
    options: dict[str, Any],
    recipe: RecipeOrTask = "tiny_cpu",
    corpus_json: Annotated[str, typer.Option(metavar="LIST", help=_JSON.format("corpus"))] = "[]",
    set_json: Annotated[str, typer.Option(metavar="LIST", help=_JSON.format("set"))] = "[]",
    expect: Annotated[
        str | None, typer.Option(metavar="NODE,...", help="Nodes that the orchestrator will run; others are refused.")
    ] = None,
) -> None:
    """Start a run and print its nodes in order.

    Words after `--` go to Beam: `-- --runner=DataflowRunner --project=...`.
    """
    given = _texts("--set-json", set_json)
    listed, single = ({text.partition("=")[0] for text in texts} for texts in (given, options["settings"]))
    if listed & single:
        name = min(listed & single)
        raise InputError(f"--set-json and --set have {name}; give it once, to Kubeflow as the pipeline's parameter")
    options["settings"] = (*given, *options["settings"])
    options["corpus"] = (*_texts("--corpus-json", corpus_json), *options["corpus"])
    request = RunRequest(recipe, os.path.abspath(run_dir), beam_args=tuple(context.obj or []), **options)
    with temporary_run_dir(request.run_dir):
        from pipeline.runs.resolve import resolve

        spec = resolve(request, run_id)
        from pipeline.runners.run_steps import compile_run

        nodes = compile_run(spec, run_id)
    if expect is not None and set(expect.split(",")) != set(nodes):
        raise InputError(
            f"{recipe} with these settings has other nodes ({','.join(nodes)}) than the compiled ones ({expect}); "
            "compile for the orchestrator again, with these settings"
        )
    typer.echo("\n".join(nodes))


def run_node(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node printed by `bert-tfx compile nodes`.")],
    run_dir: RunDir,
    run_id: RunId,
    again: Annotated[bool, typer.Option("--again", help="Re-run a node that succeeded, without the cache.")] = False,
) -> None:
    """Run one node of a compiled run.

    A successful node is not run again. Exit codes are those of `pretrain`.
    """
    from pipeline.runners import run_steps

    # A line a message; messages of several lines, which are TFX's protocol buffers, are dropped.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: record.levelno > logging.INFO or "\n" not in record.getMessage().strip())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    logging.getLogger("absl").setLevel(logging.INFO)  # TFX's logger, which has its own level
    run_steps.run_node(os.path.abspath(run_dir), run_id, node, again)


def finish(
    run_dir: RunDir,
    run_id: RunId,
    outcome: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write `pushed`, `pushed before`, `refused` or `no new text` to this file, and exit with 0.",
        ),
    ] = None,
) -> None:
    """Write summary.json and report.html, print the summary. Exit code 3: the gate refused the model."""
    from pipeline.runners import run_steps

    summary = run_steps.finish(os.path.abspath(run_dir), run_id)
    if outcome is None:
        exit_if_refused(summary)
    else:
        with open(outcome, "w", encoding="utf-8") as file:
            refused = "refused" if summary.get("new_text", True) else "no new text"
            is_new = summary["blessed"] and summary["stage_states"][MODEL_PUSH] == "COMPLETE"  # not of the cache
            file.write("pushed" if is_new else "pushed before" if summary["blessed"] else refused)


def _texts(option: str, text: str) -> list[str]:
    try:
        texts = json.loads(text)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not all(isinstance(item, str) for item in texts):
        raise InputError(f"""{option} {text}: must be a list of texts, as '["a", "b"]'""")
    return texts
