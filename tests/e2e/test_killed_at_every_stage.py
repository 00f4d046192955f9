"""kill -9 at the start of each stage, then the same command again, until it ends: finished stages are not repeated."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipeline.runs.lineage import latest_run, run_named
from pipeline.runs.request import RunRequest, run_ids
from tests.support.pipeline.command_line import arguments


@pytest.mark.slow  # each start of the command imports TFX
@pytest.mark.timeout(3600)
def test_a_run_killed_at_every_stage_repeats_no_finished_stage(corpus, first_run, tmp_path):
    run_dir = str(tmp_path / "run")
    command = [str(Path(sys.executable).with_name("bert-tfx")), *arguments(corpus, run_dir)]
    nodes = list(latest_run(str(first_run.dir)).stages)
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
        for stage in run_named(RunRequest.read(run_dir, run_id), run_id).stages.values()
        if stage.state == "COMPLETE"
    )
    assert len(run_ids(run_dir)) == len(nodes) + 1
    # The Resolver queries ML Metadata in each run, by design.
    assert {name: count for name, count in finished.items() if name != "Baseline"} == dict.fromkeys(
        set(nodes) - {"Baseline"}, 1
    )
    assert len(list(Path(run_dir, "serving").iterdir())) == 1
