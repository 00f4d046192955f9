"""`python -m benchmarks.ablations`: text, two small tasks -> pre-trained and fine-tuned models, a table, a picture."""

import json
import random

import numpy as np
import pytest

from benchmarks.ablations.__main__ import app
from benchmarks.ablations.experiments import experiment_of
from benchmarks.ablations.recipes import scale_of, tiny
from benchmarks.ablations.results import Results
from benchmarks.ablations.runner import PretrainingStep, jobs_of
from benchmarks.ablations.trainer import LocalTrainer
from bert_keras.errors import InputError
from tests.support.pipeline.command_line import bert_tfx, refusal

NOUNS = ["cat", "dog", "bird", "man", "woman", "child", "king", "river", "house", "garden", "storm", "letter"]
VERBS = ["sees", "hears", "finds", "takes", "leaves", "follows"]
GOOD, BAD = ["lovely", "bright", "warm", "fine"], ["awful", "dull", "cold", "poor"]


def sentence(rng, adjectives):
    return f"the {rng.choice(adjectives)} {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)}"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Text, and folders of SST-2 (a row's adjective is its label) and MRPC (a paraphrase is the same sentence)."""
    root, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    documents = ["\n".join(sentence(rng, GOOD + BAD) + "." for _ in range(8)) for _ in range(120)]
    (root / "text.txt").write_text("\n\n".join(documents))
    for name, header in {"sst-2": "sentence\tlabel", "mrpc": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"}.items():
        for split, count in {"train": 64, "dev": 32}.items():
            lines = [header]
            for number in range(count):
                label = number % 2
                first = sentence(rng, GOOD if label else BAD)
                second = first if label else sentence(rng, GOOD)
                cells = (first, label) if name == "sst-2" else (label, number, number + 1000, first, second)
                lines.append("\t".join(map(str, cells)))
            (root / name).mkdir(exist_ok=True)
            (root / name / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return root


def local_trainer(data, output, tasks):
    return LocalTrainer(
        [str(data / "text.txt")], {name: str(data / name) for name in tasks}, "", Results(str(output)), tiny()
    )


def jobs(data, output, *settings):
    recipe, tasks = scale_of("tiny", settings), ["sst-2"]
    return jobs_of(experiment_of("tasks", recipe, tasks), recipe, settings, local_trainer(data, output, tasks))


def ablate(experiment, data, output, *words, tasks=("sst-2", "mrpc")):
    given = [word for name in tasks for word in ("--task", f"{name}={data / name}")]
    words = ("--scale", "tiny", "--corpus", data / "text.txt", *given, "--output", output, *words)
    return bert_tfx(experiment, *words, application=app)


@pytest.mark.slow  # trains for a minute; test_ablations.py has its jobs, its tables and its resuming
def test_an_experiment_writes_a_table_a_picture_and_figures_and_resumes(data, tmp_path):
    """With one task: test_ablations.py has the jobs and tables of several."""
    # With a head start the table of positions is not trained, so a checkpoint has it elsewhere.
    seeds = ("--set", "ablation.seeds=1", "--set", "pretraining.head_start=true")
    code, out, err = ablate("tasks", data, tmp_path, *seeds, tasks=("sst-2",))
    assert code == 0, err
    # Three models for four arms, each of which is fine-tuned.
    assert "[1/7] pre-training BERT" in out and "[7/7] + BiLSTM, SST-2, seed 0: accuracy" in out
    table = (tmp_path / "tasks" / "table.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    assert lines[0][5:9] == ["MRPC, paper", "ours", "SST-2, paper", "ours"]
    assert [line[0] for line in lines[2:]] == ["BERT", "No NSP", "LTR & No NSP", "+ BiLSTM"]
    assert lines[2][1:8:2] == ["84.4", "88.4", "86.7", "92.7"]
    assert lines[2][2:7:2] == [""] * 3 and float(lines[2][8]) > 0
    assert "No data for MNLI-m, QNLI, MRPC, SQuAD F1" in table and "- SST-2: one figure per arm" in table
    assert (tmp_path / "tasks" / "picture.svg").read_text().startswith("<?xml")
    cells = json.loads((tmp_path / "tasks" / "figures.json").read_text())["cells"]
    assert len(cells) == 4 and all(len(cell["figures"]) == 1 for cell in cells)

    # A lost result is computed again, and nothing else.
    lost = sorted((tmp_path / "finetuned").glob("*.json"))[0]
    before = lost.read_bytes()
    lost.unlink()
    code, out, err = ablate("tasks", data, tmp_path, *seeds, tasks=("sst-2",))
    assert code == 0, err
    assert "6 of 7 units are already in" in out and "[7/7]" in out and "] pre-training" not in out
    assert json.loads(lost.read_text())["figures"] == json.loads(before)["figures"]

    # A checkpoint of the last step equals the exported model, so `steps` reads the earlier ones.
    of_arm = {job.arm.name: job for job in jobs(data, tmp_path, *seeds[1::2]) if not job.column}
    trainer = local_trainer(data, tmp_path, ["sst-2"])
    for name, causal in {"BERT": False, "LTR & No NSP": True}.items():
        job = of_arm[name]
        folder = Results(str(tmp_path)).folder(job.unit)
        steps = (PretrainingStep(folder, job.recipe, step) for step in (None, 24))
        exported, checkpoint = map(trainer.init_checkpoint, steps)
        assert exported.config == checkpoint.config and exported.config.causal == causal
        for one, other in zip(exported.encoder.get_weights(), checkpoint.encoder.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
    drawn = trainer.init_checkpoint(PretrainingStep(folder, job.recipe, 0))
    assert drawn.config == exported.config and drawn.encoder is None
    with pytest.raises(InputError, match="has no checkpoint of step 5; remove it and"):
        trainer.init_checkpoint(PretrainingStep(folder, job.recipe, 5))


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["pretraining", "size", "masking", "steps", "relatives"])
def test_every_other_experiment_runs(data, tmp_path, experiment):
    code, out, err = ablate(experiment, data, tmp_path, "--set", "ablation.seeds=1", tasks=("sst-2",))
    assert code == 0, err
    cells = json.loads((tmp_path / experiment / "figures.json").read_text())["cells"]
    assert len(cells) > 1 and all(len(cell["figures"]) == 1 for cell in cells)
    # The paper has no order of masking procedures on this task.
    assert ("orders are inconclusive" in out) == (experiment != "masking")


def test_a_bad_row_is_reported_before_training(data, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "train.tsv").write_text("sentence\tlabel\na good day\t1\na bad day\tno\n")
    words = ("tasks", "--scale", "tiny", "--corpus", data / "text.txt", "--task", f"sst-2={bad}")
    err = refusal(*words, "--output", tmp_path / "out", application=app)
    assert "train.tsv" in err and "line 3" in err
    (bad / "train.tsv").write_text("sentence\tlabel\na good day\t1\na bad day\t0\n")
    code, _, err = bert_tfx(*words, "--output", tmp_path / "out", application=app)
    assert code == 2 and "are not one batch of training.train_batch_size=16" in err
    assert not (tmp_path / "out" / "pretrained").exists()


def test_bad_input_is_one_line(data, tmp_path):
    for words, message in {
        ("depth", "--corpus", data): "depth: no such experiment; there are tasks, pretraining, size, masking",
        ("tasks", "--corpus", data): "ablate tasks needs data: give --task NAME=DIR for mnli, qnli, mrpc",
        ("tasks", "--corpus", data, "--task", "mrpc"): "--task mrpc: must be NAME=DIR",
        ("tasks", "--corpus", data, "--task", "mrpd=x"): "mrpd: no such task",
        ("imdb", "--corpus", data, "--task", f"mrpc={data}"): "ablate imdb takes only --task imdb=DIR, not mrpc",
        ("tasks", "--task", f"mrpc={data}"): "give --corpus PATH to pre-train on",
        ("tasks", "--task", f"mrpc={data}", "--init", data): "--init is for features and pretraining only",
        ("tasks", "--corpus", data / "text.txt", "--task", f"mrpc={data}"): "has no training file for mrpc",
        ("tasks", "--corpus", data / "none", "--task", f"mrpc={data / 'mrpc'}"): "none: no such file; --corpus takes",
        ("tasks", "--corpus", data, "--scale", "huge"): "huge: no such scale; there are laptop, demo, tiny",
        ("tasks", "--corpus", data, "--set", "ablation.seed=1"): "the nearest one is ablation.seeds",
        ("size", "--corpus", data, "--task", f"mrpc={data}", "--set", "ablation.width_divisor=5"): "do not divide the",
    }.items():
        assert message in refusal(*words, "--output", tmp_path / "out", application=app)
    assert not (tmp_path / "out").exists()
