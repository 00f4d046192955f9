"""A pre-training in two phases through the command line: stopped in the second, resumed, reported and pushed."""

import json
import signal
import time

from bert_keras.data.example_format import ExampleSpec
from tests.support.pipeline.command_line import arguments, bert_tfx, start


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
    process = start(*arguments(corpus, run_dir, **changes))

    def in_the_second_phase():
        logs = list(run_dir.glob("training/*/log.jsonl"))
        return logs and '"step": 65' in logs[0].read_text()

    try:
        end = time.monotonic() + 600
        while not in_the_second_phase():
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == 4, process.stdout.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
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
