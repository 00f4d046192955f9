"""The command line, for the end-to-end tests."""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

# A model of one layer on a fifth of a megabyte: trains in seconds, and becomes better than untrained.
SMALL = {
    "model.vocab_size": 1200,
    "model.hidden_size": 32,
    "model.num_hidden_layers": 1,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 64,
    "examples.max_seq_length": 32,
    "examples.masking.max_predictions_per_seq": 5,
    "training.train_batch_size": 32,
    "training.num_train_steps": 120,
    "training.num_warmup_steps": 10,
    "training.learning_rate": 0.005,
    "training.save_checkpoints_steps": 40,
    "training.jit_compile": "false",
    "gate.max_mlm_perplexity": 600,
    "gate.min_mlm_accuracy": 0.02,
    "gate.min_nsp_accuracy": 0.3,
    "gate.allow_chance": "true",
    # What the model answers is tested, not how fast this machine is.
    "serving.max_latency_ms": 60_000,
    "serving.max_load_seconds": 600,
}


def set_words(settings):
    """The options `--set KEY=VALUE`."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def arguments(corpus, run_dir, **changes):
    """Arguments of a `pretrain` command; `a__b=c` changes setting a.b."""
    settings = SMALL | {name.replace("__", "."): value for name, value in changes.items()}
    return ["pretrain", "tiny_cpu", "--corpus", str(corpus), "--run-dir", str(run_dir), *set_words(settings)]


def bert_tfx(*words, application=None):
    """Run the command line in this process; return exit code, standard output, standard error."""
    from pipeline.cli import app, main

    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["bert-tfx", *map(str, words)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(application or app)
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def refusal(*words, code=2, **options):
    """The one line that a command ends with."""
    ended, _, err = bert_tfx(*words, **options)
    assert ended == code and len(err.strip().splitlines()) == 1, (ended, err)
    return err


def summary_of(run_dir):
    """The figures of a run."""
    return json.loads((run_dir / "summary.json").read_text())


def start(*words):
    """Start the command in a process of its own; its errors are among its output."""
    command = [Path(sys.executable).with_name("bert-tfx"), *words]
    return subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
