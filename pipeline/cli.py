"""The command line `bert-tfx`. Commands import heavy libraries when they need them."""

import contextlib
import importlib.util
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

import bert_keras
from bert_keras.errors import InputError, Preempted, StageError
from bert_keras.notices import notify, tell
from bert_keras.training.preemption import answered, ctrl_c
from pipeline.commands import apply, convert, demo, doctor, hard_negatives, minimal_pairs, runs, score, text, train
from pipeline.commands.compile import airflow as compile_airflow
from pipeline.commands.compile import kubeflow as compile_kubeflow
from pipeline.commands.compile import nodes as compile_nodes
from pipeline.commands.server import ask, deploy, models, serve
from pipeline.runs.exit_codes import Exit, storage_trouble

app = typer.Typer(
    help="One TFX pipeline from raw text to a served BERT.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bert-tfx {bert_keras.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Declare the program's own options; the help text is that of `app`. Set Keras' backend."""
    only_jax = importlib.util.find_spec("jax") and not importlib.util.find_spec("tensorflow")
    backend = "jax" if only_jax else "tensorflow"
    if (given := os.environ.get("KERAS_BACKEND") or backend) != backend:
        others = "training.backend=jax trains on JAX, all else computes with TensorFlow"
        notify(f"KERAS_BACKEND={given} is ignored: {others}; unset the variable")
    os.environ["KERAS_BACKEND"] = backend


_SERVING, _ORCHESTRATION = "Serving", "Orchestration: Airflow, Kubeflow, Vertex AI, Dataflow"
# By the panels of --help, in this order.
_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "From text to a served model": (
        *(demo.demo, runs.pretrain, runs.finetune, runs.recipes, runs.tasks, runs.report),
        doctor.doctor,
    ),
    "Single steps": (
        *(text.examples, text.tokenize, train.train, convert.convert, score.score, minimal_pairs.minimal_pairs),
        hard_negatives.hard_negatives,
    ),
    _SERVING: (serve.serve, ask.predict, ask.fill_mask, ask.encode, apply.apply),
    _ORCHESTRATION: (compile_nodes.run_node, compile_nodes.finish),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
compile_nodes.compile_app.command()(compile_airflow.airflow)
compile_nodes.compile_app.command("kubeflow")(compile_kubeflow.compile_kubeflow)
app.add_typer(models.app, name="models", rich_help_panel=_SERVING)
app.add_typer(deploy.app, name="deploy", rich_help_panel=_SERVING)
app.add_typer(compile_nodes.compile_app, name="compile", rich_help_panel=_ORCHESTRATION)


def _prepare_terminal() -> None:
    """Silence the libraries before they are imported (a run's log has their messages); widen help that is piped."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    warnings.filterwarnings("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    sys.unraisablehook = _unraisable
    # Typer would assume 80 columns, and cut the names of long options.
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        os.environ.setdefault("TERMINAL_WIDTH", "120")


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Suppress TensorFlow's errors during interpreter shutdown."""
    if "AtomicFunction.__del__" not in repr(unraisable.object):
        sys.__unraisablehook__(unraisable)


def _code_of_serving(error: Exception) -> Exit | None:
    """The exit code of an error of `serving` for users; None: a defect. Requests invalid or not sent are bad input."""
    # Only commands that deal with a server have imported these.
    client, server, errors = (sys.modules.get(f"serving.{module}") for module in ("client", "server", "errors"))
    if errors and isinstance(error, errors.SettingsError):
        return Exit.BAD_INPUT
    if client and isinstance(error, client.ClientError):
        bad_input = error.code is None or error.code.name == "INVALID_ARGUMENT"
        return Exit.BAD_INPUT if bad_input else Exit.FAILED
    return Exit.FAILED if server and isinstance(error, server.CannotListen) else None


# The time for a command to clean up after Ctrl-C; a second one ends it at once.
_SECONDS_TO_STOP = 4.0


def _answer_ctrl_c(number: int) -> None:
    """End the command soon if its KeyboardInterrupt does not: Beam waits forever for workers that Ctrl-C has ended."""
    if number != signal.SIGINT or signal.getsignal(number) is not signal.default_int_handler:
        return
    if ctrl_c.is_set():
        _end()
    ctrl_c.set()
    timer = threading.Timer(_SECONDS_TO_STOP, _end)
    timer.daemon = True
    timer.start()


def _end() -> NoReturn:
    """End without the interpreter's own end, which waits for Beam's threads."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    tell("stopped by Ctrl-C; run the same command to resume")
    sys.stdout.flush()
    os._exit(128 + signal.SIGINT)


# Their arguments are texts; a server replaces invalid bytes in them.
_OF_TEXTS = ("fill-mask", "encode", "predict")
# They pass the words after `--` to Beam.
_ON_BEAM = ("apply", "examples", "pretrain", "compile")


def main(application: typer.Typer = app) -> None:
    """Run a command. Errors that the user can fix are one line on standard error; a defect is a traceback."""
    _prepare_terminal()
    code: int = Exit.FAILED
    message = ""
    ctrl_c.clear()
    try:
        for word in map(os.fsencode, sys.argv[1:]):
            if sys.argv[1] not in _OF_TEXTS and word != word.decode("utf-8", "replace").encode():
                raise InputError(f"{word!r} is not UTF-8; rename the file, or write the argument in UTF-8")
        words, end = sys.argv[1:], len(sys.argv)
        if words and words[0] in _ON_BEAM and "--" in words:
            end = words.index("--")
        with answered(_answer_ctrl_c):
            application(args=words[:end], obj=words[end + 1 :])
    except InputError as error:
        # Remove Beam's name of the transform.
        code, message = Exit.BAD_INPUT, re.sub(r" \[while running '.*'\]$", "", str(error))
    except StageError as error:
        message = str(error)
    except Preempted as error:
        code, message = Exit.PREEMPTED, str(error)
    except ModuleNotFoundError as error:
        # Where TensorFlow is, whatever else is missing is a defect.
        if importlib.util.find_spec("tensorflow"):
            raise
        message = (
            f"this command needs {error.name}, which is not installed: pip install 'bert-tfx[pipeline]', or "
            "'bert-tfx[jax]' for `train` (bert-tfx doctor)"
        )
    except SystemExit as exit_:
        # Typer prints nothing on Ctrl-C.
        if not isinstance(getattr(exit_.__context__, "__cause__", None), KeyboardInterrupt):
            raise
        ctrl_c.set()
    except Exception as error:
        trouble, serving_code = storage_trouble(error), _code_of_serving(error)
        if trouble is None and serving_code is None and not ctrl_c.is_set():
            raise
        code, message = serving_code or Exit.FAILED, trouble or str(error)
    if ctrl_c.is_set():  # whatever libraries made of it
        _end()
    tell(message)
    sys.exit(code)
