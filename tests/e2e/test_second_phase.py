"""A pre-training in two phases through the command line: stopped in the second, resumed, reported and pushed."""

import json
import subprocess
import sys

from bert_keras.data.example_format import ExampleSpec
from tests.support.pipeline.command_line import arguments, bert_tfx

# Gets SIGTERM once step 65 is logged, however fast it is: the second phase is steps 61 to 120.
STOPPED = """
import os, signal
from pipeline.cli import main
from bert_keras.training.log import TrainingLog

write = TrainingLog.write

def write_and_stop(log, kind, step, metrics):
    write(log, kind, step, metrics)
    if (kind, step) == ("train", 65):
        os.kill(os.getpid(), signal.SIGTERM)

TrainingLog.write = write_and_stop
main()
"""


def test_sigterm_in_the_second_phase_has_its_own_exit_code_and_the_command_resumes(corpus, tmp_path):
    """Also: examples of both lengths are made and checked; report and exported model belong to the second phase."""
    run_dir = tmp_path / "run"
    changes = {
        "second_phase__num_train_steps": 60,
        "second_phase__train_batch_size": 16,
        "second_phase__max_seq_length": 64,
        "second_phase__max_predictions_per_seq": 9,
        "training__steps_per_execution": 5,
    }
    words = [sys.executable, "-c", STOPPED, *map(str, arguments(corpus, run_dir, **changes))]
    stopped = subprocess.run(words, capture_output=True, text=True)
    assert stopped.returncode == 4, stopped.stderr[-3000:]
    assert "stopped by SIGTERM at step 70" in stopped.stdout + stopped.stderr
    code, _, err = bert_tfx(*arguments(corpus, run_dir, **changes))
    assert code == 0, err
    (log,) = run_dir.glob("training/*/log.jsonl")
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines() if '"train"' in line]
    assert steps == [*range(5, 121, 5)]
    summary = json.loads((run_dir / "summary.json").read_text())
    (second,) = (run_dir / "artifacts/PretrainExampleGen_second_phase").glob("examples/*")
    spec = ExampleSpec.load(str(second))
    assert (spec.max_seq_length, spec.train_examples) == (64, summary["examples_train"])
    assert ExampleSpec.load(str(run_dir / "serving" / summary["pushed_version"])).max_seq_length == 64
    assert f"{spec.train_examples:,} to train" in (run_dir / "report.html").read_text()
