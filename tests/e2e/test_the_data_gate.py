"""A limit of the data, through the command line. Last of the tests of the shared run, whose directory it runs in."""

from command_line import arguments, bert_tfx

from pipeline.lineage import latest_run


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
    assert "filled positions" in " ".join(out.split())  # it is as wide as the terminal
    stages = latest_run(str(first_run.dir)).stages
    ran = {name for name, stage in stages.items() if stage.state != "CACHED"}
    assert ran == {"ExampleGate", "Baseline"}
    assert sorted((first_run.dir / "serving").iterdir()) == pushed
