"""kill -9 at the start of each stage, then the same command again, until it ends: finished stages are not repeated."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bert_keras.convert.bert_tfx import read_tokenizer
from bert_keras.convert.weight_copy import variables_by_path
from pipeline.runs.lineage import latest_run, run_named
from pipeline.runs.spec import RunSpec, run_ids
from tests.support.models.model_folders import read_pushed
from tests.support.pipeline.command_line import arguments, bert_tfx


@pytest.mark.slow  # each start of the command imports TFX
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("continued", [False, True])
def test_a_run_killed_at_every_stage_repeats_no_finished_stage(corpus, first_run, tmp_path, continued):
    run_dir, undisturbed = str(tmp_path / "run"), first_run.dir
    command = [str(Path(sys.executable).with_name("bert-tfx")), *arguments(corpus, run_dir)]
    if continued:
        (init,) = (first_run.dir / "serving").iterdir()
        size = len(read_tokenizer(str(init)).vocabulary)
        words = ["--init", str(init), "--set", f"model.vocab_size={size}", "--set", "training.num_train_steps=8"]
        words += ["--set", "training.num_warmup_steps=2", "--set", "gate.max_mlm_perplexity_increase=0.5"]
        undisturbed = tmp_path / "undisturbed"
        code, _, err = bert_tfx(*arguments(corpus, undisturbed), *words)
        assert code == 0, err
        command += words
    nodes = list(latest_run(str(undisturbed)).stages)
    begun = []
    while set(begun) != set(nodes):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            for line in process.stdout:
                if (node := line.strip()) in nodes and node not in begun:
                    begun.append(node)
                    process.kill()
        assert process.returncode == -signal.SIGKILL, f"it ended by itself: {line}"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    finished = Counter(
        stage.name
        for run_id in run_ids(run_dir)
        for stage in run_named(RunSpec.read(run_dir, run_id).request, run_id).stages.values()
        if stage.state == "COMPLETE"
    )
    assert len(run_ids(run_dir)) == len(nodes) + 1
    # The Resolver queries ML Metadata in each run, by design.
    assert {name: count for name, count in finished.items() if name != "Baseline"} == dict.fromkeys(
        set(nodes) - {"Baseline"}, 1
    )
    ours, theirs = (weights(folder / "serving") for folder in (Path(run_dir), undisturbed))
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        np.testing.assert_array_equal(value, theirs[path], err_msg=path)


def weights(serving):
    """The weights of the only pushed version."""
    (version,) = serving.iterdir()
    return {path: np.asarray(value) for path, value in variables_by_path(read_pushed(str(version)).model).items()}
