"""`bert-tfx ablate`: text and two small tasks -> pre-trained models, fine-tuned ones, a table and a picture."""

import json
import random

import numpy as np
import pytest
from command_line import bert_tfx

from bert_keras.errors import InputError
from pipeline.ablations.experiments import experiment_of
from pipeline.ablations.results import Results
from pipeline.ablations.run import Begin, jobs_of
from pipeline.ablations.scales import scale_of, tiny
from pipeline.ablations.trainer import LocalTrainer

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
    recipe, tasks = scale_of("tiny", settings), ["sst-2", "mrpc"]
    return jobs_of(experiment_of("tasks", recipe, tasks), recipe, settings, local_trainer(data, output, tasks))


def ablate(experiment, data, output, *words, tasks=("sst-2", "mrpc")):
    given = [word for name in tasks for word in ("--task", f"{name}={data / name}")]
    words = ("--scale", "tiny", "--corpus", data / "text.txt", *given, "--output", output, *words)
    return bert_tfx("ablate", experiment, *words)


def test_an_experiment_leaves_a_table_a_picture_and_figures_and_goes_on_where_it_was(data, tmp_path):
    seeds = ("--set", "ablation.seeds=1")
    code, out, err = ablate("tasks", data, tmp_path, *seeds)
    assert code == 0, err
    # Three models for four arms; 4 arms x 2 tasks.
    assert "[1/11] pre-training BERT" in out and "[11/11] + BiLSTM, SST-2, seed 0: accuracy" in out
    table = (tmp_path / "tasks" / "table.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    assert lines[0][5:9] == ["MRPC, paper", "ours", "SST-2, paper", "ours"]
    assert [line[0] for line in lines[2:]] == ["BERT", "No NSP", "LTR & No NSP", "+ BiLSTM"]
    assert lines[2][1:6:2] == ["84.4", "88.4", "86.7"] and lines[2][2] == lines[2][4] == "" and float(lines[2][6]) > 0
    assert "No data were given for MNLI-m, QNLI, SQuAD F1" in table and "- MRPC: of one figure an arm" in table
    assert (tmp_path / "tasks" / "picture.svg").read_text().startswith("<?xml")
    cells = json.loads((tmp_path / "tasks" / "figures.json").read_text())["cells"]
    assert len(cells) == 8 and all(len(cell["figures"]) == 1 for cell in cells)

    # What is lost is done again, and nothing else.
    lost = sorted((tmp_path / "finetuned").glob("*.json"))[0]
    before = lost.read_bytes()
    lost.unlink()
    code, out, err = ablate("tasks", data, tmp_path, *seeds)
    assert code == 0, err
    assert "10 of 11 units are there already" in out and "[11/11]" in out and "] pre-training" not in out
    assert json.loads(lost.read_text())["figures"] == json.loads(before)["figures"]

    # A checkpoint of the last step is what was exported: so `steps` reads those before it.
    of_arm = {job.arm.name: job for job in jobs(data, tmp_path, *seeds[1:]) if not job.column}
    trainer = local_trainer(data, tmp_path, ["sst-2"])
    for name, causal in {"BERT": False, "LTR & No NSP": True}.items():
        job = of_arm[name]
        folder = Results(str(tmp_path)).folder(job.unit)
        exported, checkpoint = (trainer.start(Begin(folder, job.recipe, step)) for step in (None, 24))
        assert exported.config == checkpoint.config and exported.config.causal == causal
        for one, other in zip(exported.backbone.get_weights(), checkpoint.backbone.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
    drawn = trainer.start(Begin(folder, job.recipe, 0))
    assert drawn.config == exported.config and drawn.backbone is None
    with pytest.raises(InputError, match="has no checkpoint of step 5; remove it and"):
        trainer.start(Begin(folder, job.recipe, 5))


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["pretraining", "size", "masking", "steps", "relatives"])
def test_every_other_experiment_runs(data, tmp_path, experiment):
    code, out, err = ablate(experiment, data, tmp_path, "--set", "ablation.seeds=1", tasks=("sst-2",))
    assert code == 0, err
    cells = json.loads((tmp_path / experiment / "figures.json").read_text())["cells"]
    assert len(cells) > 1 and all(len(cell["figures"]) == 1 for cell in cells)
    # Of the masking procedures the paper has no order on this task.
    assert ("no order can be told" in out) == (experiment != "masking")


def test_a_bad_row_is_told_before_anything_is_trained(data, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "train.tsv").write_text("sentence\tlabel\na good day\t1\na bad day\tno\n")
    code, _, err = bert_tfx(
        *("ablate", "tasks", "--scale", "tiny", "--corpus", data / "text.txt", "--output", tmp_path / "out"),
        *("--task", f"sst-2={bad}"),
    )
    assert code == 2 and "train.tsv" in err and "line 3" in err and len(err.strip().splitlines()) == 1
    (bad / "train.tsv").write_text("sentence\tlabel\na good day\t1\na bad day\t0\n")
    code, _, err = bert_tfx(
        *("ablate", "tasks", "--scale", "tiny", "--corpus", data / "text.txt", "--output", tmp_path / "out"),
        *("--task", f"sst-2={bad}"),
    )
    assert code == 2 and "are not one batch of training.train_batch_size=16" in err
    assert not (tmp_path / "out" / "pretrained").exists()


def test_bad_input_is_one_line(data, tmp_path):
    for words, message in {
        ("depth", "--corpus", data): "depth: no such experiment; there are tasks, pretraining, size, masking",
        ("tasks", "--corpus", data): "ablate tasks needs data: give --task NAME=DIR of mnli, qnli, mrpc",
        ("tasks", "--corpus", data, "--task", "mrpc"): "--task mrpc: is not NAME=DIR",
        ("tasks", "--corpus", data, "--task", "mrpd=x"): "mrpd: no such task",
        ("imdb", "--corpus", data, "--task", f"mrpc={data}"): "ablate imdb takes --task imdb=DIR alone, not mrpc",
        ("tasks", "--task", f"mrpc={data}"): "give --corpus PATH to pre-train on",
        ("tasks", "--task", f"mrpc={data}", "--init", data): "--init is of features alone",
        ("tasks", "--corpus", data / "text.txt", "--task", f"mrpc={data}"): "has no file for mrpc to train on",
        ("tasks", "--corpus", data / "none", "--task", f"mrpc={data / 'mrpc'}"): "none: no such file; --corpus takes",
        ("tasks", "--corpus", data, "--scale", "huge"): "huge: no such scale; there are laptop, tiny",
        ("tasks", "--corpus", data, "--set", "ablation.seed=1"): "the nearest one is ablation.seeds",
        ("size", "--corpus", data, "--task", f"mrpc={data}", "--set", "ablation.width_divisor=5"): "do not divide the",
    }.items():
        code, _, err = bert_tfx("ablate", *words, "--output", tmp_path / "out")
        assert (code, message in err, len(err.strip().splitlines())) == (2, True, 1), err
    assert not (tmp_path / "out").exists()
