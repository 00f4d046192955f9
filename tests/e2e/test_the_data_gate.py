"""A limit of the data gate, through the command line. Uses the shared run's directory, after all other tests."""

from pipeline.runs.lineage import latest_run
from tests.support.pipeline.command_line import arguments, bert_tfx


def test_a_limit_stops_the_run_and_another_one_repeats_the_gate_alone(first_run, corpus):
    pushed = sorted((first_run.dir / "serving").iterdir())
    code, _, err = bert_tfx(*arguments(corpus, first_run.dir, data__max_random_next_fraction=0.5))
    assert code == 1
    message = err.splitlines()[-1]
    assert message.startswith("bert-tfx: the data are outside the recipe's limits: examples: share of random next ")
    assert "%, the recipe allows at most 50% (data.max_random_next_fraction): " in message
    stages = latest_run(str(first_run.dir)).stages
    assert stages["ExampleGate"].state == "FAILED"
    assert "Trainer" not in stages

    code, out, err = bert_tfx(*arguments(corpus, first_run.dir, data__max_random_next_fraction=0.9))
    assert code == 0, err
    assert "filled positions" in " ".join(out.split())  # the screen is as wide as the terminal
    stages = latest_run(str(first_run.dir)).stages
    ran = {name for name, stage in stages.items() if stage.state != "CACHED"}
    assert ran == {"ExampleGate", "Baseline"}
    assert sorted((first_run.dir / "serving").iterdir()) == pushed
