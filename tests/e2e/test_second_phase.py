"""A pre-training in two phases through the command line: stopped in the second, resumed, reported and pushed.

On a mixture of two sources, with replayed text in both phases.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bert_keras.data.example_format import ExampleSpec
from tests.support.pipeline.command_line import arguments, bert_tfx, summary_of

ROOT = Path(__file__).parents[2]
MIXED = ["--corpus", f"prose={ROOT}/docs/*.md", "--replay", ROOT / "docs" / "decisions" / "*.md"]
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


@pytest.mark.slow
def test_sigterm_in_the_second_phase_has_its_own_exit_code_and_the_command_resumes(corpus, tmp_path):
    """Also: examples of both lengths are made and checked; report and exported model belong to the second phase."""
    run_dir = tmp_path / "run"
    changes = {
        "second_phase__num_train_steps": 60,
        "second_phase__train_batch_size": 16,
        "second_phase__max_seq_length": 64,
        "second_phase__max_predictions_per_seq": 9,
        "training__steps_per_execution": 5,
        "training__source_weights": "code:1,prose:3",
        "training__replay_share": 0.2,
        # A bullet list is a document of one sentence.
        "data__max_random_next_fraction": 0.95,
    }
    given = [*arguments(f"code={corpus}", run_dir, **changes), *MIXED]
    words = [sys.executable, "-c", STOPPED, *map(str, given)]
    stopped = subprocess.run(words, capture_output=True, text=True)
    assert stopped.returncode == 4, stopped.stderr[-3000:]
    assert re.search(r"stopped by SIGTERM at step (65|70)", stopped.stdout + stopped.stderr)
    code, out, err = bert_tfx(*given)
    assert code == 0, err
    (log,) = run_dir.glob("training/*/log.jsonl")
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines() if '"train"' in line]
    assert steps == [*range(5, 121, 5)]
    summary = summary_of(run_dir)
    (second,) = (run_dir / "artifacts/PretrainExampleGen_second_phase").glob("examples/*")
    spec = ExampleSpec.load(str(second))
    assert (spec.max_seq_length, spec.train_examples) == (64, summary["examples_train"])
    assert ExampleSpec.load(str(run_dir / "serving" / summary["pushed_version"])).max_seq_length == 64
    page = (run_dir / "report.html").read_text()
    assert f'Examples</th><td class="number">{spec.train_examples:,}</td>' in page
    assert "Mixture: what was read of each source." in page
    # 60 steps of 32 examples, then 60 of 16: a fifth is replayed, three quarters of the rest are prose.
    read = {(of["max_seq_length"], of["name"]): (round(of["share"], 6), of["read"]) for of in summary["sources"]}
    assert read == {
        (32, "replay"): (0.2, 384), (32, "code"): (0.2, 384), (32, "prose"): (0.6, 1152),
        (64, "replay"): (0.2, 192), (64, "code"): (0.2, 192), (64, "prose"): (0.6, 576),
    }  # fmt: skip
    assert "replay 20.0%, read" in out
    assert {figure["source"] for figure in summary["data_figures"]} == {"", "code", "prose"}
