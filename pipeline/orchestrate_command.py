"""What orchestrators schedule: `bert-tfx compile nodes`, a `bert-tfx run-node` for each node, `bert-tfx finish`."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Annotated

import typer

from bert_keras.errors import InputError
from pipeline.exit_codes import exit_if_refused
from pipeline.options import Corpus, Settings, Vocab
from pipeline.run_dir import made_for_run
from pipeline.run_request import RunRequest

compile_app = typer.Typer(help="Compile a pipeline for an orchestrator.", no_args_is_help=True)
Files = list[str] | None

RecipeOrTask = Annotated[
    str, typer.Argument(metavar="RECIPE_OR_TASK", help="Of `bert-tfx recipes`, or of `bert-tfx tasks`.")
]
RunDir = Annotated[str, typer.Option("--run-dir", metavar="DIR", help="A folder that all steps of the run see.")]
RunId = Annotated[str, typer.Option("--run-id", metavar="ID", help="The same for all steps of a run.")]
Name = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The pipeline's, by which ML Metadata tells it from others; bert-pretrain or bert-finetune.",
    ),
]
MetadataUri = Annotated[
    str,
    typer.Option(
        "--metadata",
        metavar="URI",
        help="Where ML Metadata lies: sqlite:FILE, mysql://USER@HOST/DATABASE, grpc://HOST:PORT; "
        "a file in the run directory if not given. Its password: BERT_TFX_METADATA_PASSWORD.",
    ),
]
Data = Annotated[str | None, typer.Option(metavar="DIR", help="Of a task: its official folder.")]
Train = Annotated[Files, typer.Option(metavar="FILE", help="Of a task: training rows in place of --data; repeatable.")]
HeldOut = Annotated[Files, typer.Option("--eval", metavar="FILE", help="Of a task: rows to judge on.")]
Test = Annotated[Files, typer.Option(metavar="FILE", help="Of a task: rows to answer.")]
Init = Annotated[str | None, typer.Option(metavar="DIR", help="Of a task: the model to begin with.")]
AsJson = Annotated[
    str, typer.Option(metavar="LIST", help="The same as a JSON list: so a parameter of an orchestrator may come.")
]
Cased = Annotated[
    bool | None, typer.Option("--cased/--uncased", help="Of a task: whether the vocabulary of --init keeps case.")
]


@compile_app.command("nodes")
def compile_nodes(
    context: typer.Context,
    run_dir: RunDir,
    run_id: RunId,
    recipe: RecipeOrTask = "tiny_cpu",
    corpus: Corpus = None,
    corpus_json: AsJson = "[]",
    vocab: Vocab = None,
    data: Data = None,
    train: Train = None,
    held_out: HeldOut = None,
    test: Test = None,
    init: Init = None,
    cased: Cased = None,
    settings: Settings = None,
    set_json: AsJson = "[]",
    name: Name = "",
    metadata: MetadataUri = "",
    expect: Annotated[
        str | None, typer.Option(metavar="NODE,...", help="The nodes that will be run; others are refused.")
    ] = None,
) -> None:
    """The first step of a run: find its inputs, compile its pipeline, print its nodes in order.

    Words after `--` go to Beam: `-- --runner=DataflowRunner --project=...`.
    """
    request = RunRequest(
        recipe,
        os.path.abspath(run_dir),
        settings=(*_texts("--set-json", set_json), *(settings or [])),
        corpus=(*_texts("--corpus-json", corpus_json), *(corpus or [])),
        vocab=vocab,
        data=data,
        train=tuple(train or []),
        held_out=tuple(held_out or []),
        test=tuple(test or []),
        init=init,
        cased=cased,
        name=name,
        metadata=metadata,
        beam_args=tuple(context.obj or []),
    )
    with made_for_run(request.run_dir):
        from pipeline.run_inputs import find_run_inputs

        inputs = find_run_inputs(request)
        from pipeline.orchestrated import compile_run

        nodes = compile_run(request, inputs, run_id)
    if expect is not None and set(expect.split(",")) != set(nodes):
        raise InputError(
            f"{recipe} has other nodes with these settings ({','.join(nodes)}) than what was compiled ({expect}); "
            "compile for the orchestrator again, with these settings"
        )
    typer.echo("\n".join(nodes))


def run_node(
    node: Annotated[str, typer.Argument(metavar="NODE", help="As `bert-tfx compile nodes` printed it.")],
    run_dir: RunDir,
    run_id: RunId,
    again: Annotated[bool, typer.Option("--again", help="Do it anew if it is done, and not from the cache.")] = False,
) -> None:
    """Run one node of a compiled run in this process. What is done is not done again.

    Exit codes: 0 done, 1 failed, 2 bad input, 4 stopped by SIGTERM while it trained: the same command goes on.
    """
    from pipeline import orchestrated

    _log_to_standard_error()
    orchestrated.run_node(os.path.abspath(run_dir), run_id, node, again)


def finish(
    run_dir: RunDir,
    run_id: RunId,
    outcome: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write `pushed` or `refused` there, and end with 0 for both."),
    ] = None,
) -> None:
    """The last step of a run: summary.json, report.html, and a screen. Exit code 3: the gate refused the model."""
    from pipeline import orchestrated

    summary = orchestrated.finish(os.path.abspath(run_dir), run_id)
    if outcome is None:
        exit_if_refused(summary)
    else:
        with open(outcome, "w", encoding="utf-8") as file:
            file.write("pushed" if summary["blessed"] else "refused")


def _texts(option: str, text: str) -> list[str]:
    """The texts of a JSON list."""
    try:
        made = json.loads(text)
    except ValueError:
        made = None
    if not isinstance(made, list) or not all(isinstance(item, str) for item in made):
        raise InputError(f"""{option} {text}: must be a list of texts, as '["a", "b"]'""")
    return made


def _log_to_standard_error() -> None:
    """What stages say, a line a message; TFX's own messages of several lines are protocol buffers, and dropped."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: record.levelno > logging.INFO or "\n" not in record.getMessage().strip())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    # The logger of TFX, which comes with a level of its own.
    logging.getLogger("absl").setLevel(logging.INFO)
