"""The command line: `bert-tfx`. Heavy libraries are imported by the commands that need them."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, Annotated

import typer

from bert_keras.errors import InputError, Preempted, StageError
from pipeline import (
    ablate_command,
    airflow_command,
    beam_args_command,
    convert_command,
    deploy_command,
    finetune_command,
    kubeflow_command,
    models_command,
    orchestrate_command,
    predict_command,
    score_command,
    serve_command,
    text_commands,
    train_command,
    warm_client,
)
from pipeline.asked_server import AskedServer, asks_server
from pipeline.exit_codes import Exit, exit_if_refused
from pipeline.options import DEFAULT_RUN_DIR, Corpus, RunDir, Settings, Vocab
from pipeline.run_request import RunRequest

if TYPE_CHECKING:
    from serving.client import Client

app = typer.Typer(
    help="One TFX pipeline from raw text to a served BERT.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe; `bert-tfx recipes` lists them.")]
SECONDS_TO_LOAD = 120.0
DEMO_SENTENCE = "The function returns a new [MASK]."
DEMO_TEXT = "The function returns a new array."


@app.command()
def pretrain(
    recipe: RecipeName = "tiny_cpu",
    corpus: Corpus = None,
    vocab: Vocab = None,
    settings: Settings = None,
    run_dir: RunDir = DEFAULT_RUN_DIR,
) -> None:
    """Text to a pushed model: corpus, vocabulary, examples, validation, training, gate, push.

    The same command again continues a run that was stopped, and takes from the cache what is done.
    Exit codes: 0 pushed (or served from the cache), 1 a stage failed, 2 bad input, 3 the gate refused the model,
    4 stopped by SIGTERM while it trained: the same command goes on from there.
    """
    summary = _pretrain(recipe, corpus or [], vocab, settings or [], run_dir)
    exit_if_refused(summary)


@app.command()
def demo(
    recipe: RecipeName = "tiny_cpu",
    corpus: Corpus = None,
    vocab: Vocab = None,
    settings: Settings = None,
    run_dir: RunDir = DEFAULT_RUN_DIR,
) -> None:
    """Everything once: pretrain, serve the pushed model, and ask it over gRPC to fill a mask, or to encode a text."""
    summary = _pretrain(recipe, corpus or [], vocab, settings or [], run_dir)
    if summary["served_version"] is None:
        exit_if_refused(summary)
    from pipeline.run_dir import serving_dir
    from serving.client import Client
    from serving.server import Server

    with Server(serving_dir(run_dir), grpc_port=0, rest_port=0) as server:
        if not server.wait_until_available(SECONDS_TO_LOAD):
            raise RuntimeError(f"version {summary['served_version']} does not load: see bert-tfx serve")
        typer.echo(f"serving version {server.store.newest}: gRPC {server.host}:{server.grpc_port}")
        with Client(f"{server.host}:{server.grpc_port}") as client:
            _ask(client)
    typer.echo(f"to keep it served:  .venv/bin/bert-tfx serve --run-dir {run_dir}")
    exit_if_refused(summary)


def _ask(client: Client) -> None:
    """What the served model can answer: it may fill no masks (`bert_keras.export`)."""
    if "fill_mask" in client.metadata():
        _print_masks([DEMO_SENTENCE], client.fill_mask([DEMO_SENTENCE]))
    else:
        _, tokens, size = client.encode([DEMO_TEXT])["sequence_output"].shape
        typer.echo(f"{DEMO_TEXT}\n  encoded as {tokens} vectors of {size} numbers, one a token")


def _pretrain(recipe: str, corpus: list[str], vocab: str | None, settings: list[str], run_dir: str) -> dict:
    """Runs the pipeline and everything that is told of it; returns the summary."""
    from pipeline.recipes import recipe_of

    recipe_of(recipe)  # not a task
    request = RunRequest(recipe, os.path.abspath(run_dir), settings=tuple(settings), corpus=tuple(corpus), vocab=vocab)
    from pipeline.runners import local_runner

    return local_runner.run(request)


@app.command()
def recipes(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="Show the settings of this one, or of a task.")
    ] = None,
) -> None:
    """The recipes and what each is for; of one recipe, or of a task, every setting that --set can change."""
    from bert_keras.tasks.table import TASKS
    from pipeline.config import settings_of
    from pipeline.finetune_recipes import finetuning
    from pipeline.recipes import RECIPES, recipe_of

    if recipe is None:
        for name, make in RECIPES.items():
            typer.echo(f"{name:12} {(make.__doc__ or '').splitlines()[0]}")
        typer.echo(f"and of tasks: {', '.join(TASKS)}")
    else:
        found = recipe_of(recipe) if recipe in RECIPES else finetuning(recipe)
        for key, value in settings_of(found).items():
            said = ",".join(map(str, value)) if isinstance(value, tuple) else value
            typer.echo(f"{key}={said}")


app.command()(text_commands.examples)
app.command()(text_commands.tokenize)
app.command()(convert_command.convert)
app.command()(train_command.train)
app.command()(finetune_command.tasks)
app.command()(finetune_command.finetune)
app.command()(predict_command.predict)
app.command()(score_command.score)
app.command()(ablate_command.ablate)
orchestrate_command.compile_app.command()(airflow_command.airflow)
app.add_typer(orchestrate_command.compile_app, name="compile")
orchestrate_command.compile_app.command("kubeflow")(kubeflow_command.compile_kubeflow)
app.command("run-node")(orchestrate_command.run_node)
app.command()(orchestrate_command.finish)
app.command("run-steps")(kubeflow_command.run_steps)
app.command()(kubeflow_command.submit)
app.command(context_settings={"allow_interspersed_args": False})(warm_client.warm)
app.add_typer(models_command.app, name="models")
app.add_typer(deploy_command.app, name="deploy")
app.add_typer(beam_args_command.app, name="beam-args")


@app.command()
def report(run_dir: RunDir = DEFAULT_RUN_DIR) -> None:
    """Write report.html of the newest run again."""
    from pipeline.report.page import write_report

    typer.echo(write_report(os.path.abspath(run_dir)))


app.command()(serve_command.serve)


@app.command("fill-mask")
@asks_server
def fill_mask(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Texts with one [MASK] or more.")],
    server: AskedServer,
) -> None:
    """The five likeliest tokens for each [MASK], with their probabilities.

    A text may have any number of masks, in its first pieces (as many as the model was trained on; what comes after is
    not read). A text without a mask, or with one further on, is refused. Bytes that are not UTF-8 are dropped.
    """
    with server.client() as client:
        _print_masks(texts, client.fill_mask(texts))


@app.command()
@asks_server
def encode(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Texts to encode.")],
    server: AskedServer,
) -> None:
    """The pooled vector of each text, as a line of JSON."""
    import json

    with server.client() as client:
        for text, vector in zip(texts, client.encode(texts)["pooled_output"], strict=True):
            typer.echo(json.dumps({"text": text, "pooled_output": [round(float(x), 6) for x in vector]}))


def _print_masks(texts: list[str], answers: list) -> None:
    for text, masks in zip(texts, answers, strict=True):
        typer.echo(text)
        for number, candidates in enumerate(masks, 1):
            for token, score in candidates:
                typer.echo(f"  {f'[MASK] {number}: ' if len(masks) > 1 else ''}{token:<20} {score:7.2%}")


def _quiet() -> None:
    """The libraries' own chatter goes to the run's log; before any of them is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    warnings.filterwarnings("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    sys.unraisablehook = _unraisable


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """TensorFlow's functions cannot clean up once the interpreter is half gone; nobody needs to know."""
    if "AtomicFunction.__del__" not in repr(unraisable.object):
        sys.__unraisablehook__(unraisable)


def _split_beam_args(words: list[str]) -> tuple[list[str], list[str]]:
    """The command's own words, and those after `--` of a command that hands them to Beam."""
    if words[:1] not in (["examples"], ["compile"]) or "--" not in words:
        return words, []
    end = words.index("--")
    return words[:end], words[end + 1 :]


def _code_of_serving(error: Exception) -> Exit | None:
    """The exit code of what `serving` raises for people; None for a defect.

    What a server refused as invalid is the user's, as is what was never sent: it is an option that is wrong.
    """
    # Only a command that has to do with a server has loaded these.
    client, server, errors = (sys.modules.get(f"serving.{module}") for module in ("client", "server", "errors"))
    if errors and isinstance(error, errors.SettingsError):
        return Exit.BAD_INPUT
    if client and isinstance(error, client.ClientError):
        of_the_user = error.code is None or error.code.name == "INVALID_ARGUMENT"
        return Exit.BAD_INPUT if of_the_user else Exit.FAILED
    return Exit.FAILED if server and isinstance(error, server.CannotListen) else None


def main() -> None:
    """Runs a command. What the user can mend is one line on standard error; a defect is a traceback."""
    _quiet()
    code, message = Exit.FAILED, ""
    try:
        words, beam_args = _split_beam_args(sys.argv[1:])
        app(args=words, obj=beam_args)
    except InputError as error:
        # Beam says where in the pipeline; the user need not know.
        code, message = Exit.BAD_INPUT, re.sub(r" \[while running '.*'\]$", "", str(error))
    except StageError as error:
        message = str(error)
    except Preempted as error:
        code, message = Exit.PREEMPTED, str(error)
    except KeyboardInterrupt:
        message = "stopped; the same command goes on where it was"
    except Exception as error:
        told = _code_of_serving(error)
        if told is None:
            raise
        code, message = told, str(error)
    print(f"bert-tfx: {message}", file=sys.stderr)
    sys.exit(code)
