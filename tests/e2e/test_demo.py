"""`bert-tfx demo --task`: text to a served, fine-tuned model in one command."""

import json

import pytest

from tests.support.pipeline.command_line import arguments, bert_tfx, summary_of
from tests.support.pipeline.task_files import write_task

TASK_SETTINGS = ("training.num_train_epochs=1", "task.max_seq_length=32", "gate.min_score=0", "gate.allow_chance=true")


@pytest.mark.slow  # test_demo.py of the unit tests has its parts
@pytest.mark.parametrize("recipe", ["tiny_cpu", "roberta_tiny", "elmo_tiny"])
def test_one_command_pretrains_finetunes_serves_and_asks(recipe, corpus, tmp_path):
    data, run_dir = write_task("sst-2", tmp_path / "data"), tmp_path / "run"
    _, _, *words = arguments(corpus, run_dir, gate__min_mlm_accuracy=0)
    frozen = ("task.features=weighted_sum_all", "task.lstm_units=8") if recipe == "elmo_tiny" else ()
    task = [word for setting in (*TASK_SETTINGS, *frozen) for word in ("--task-set", setting)]
    command = ["demo", recipe, *words, "--task", f"sst-2={data}", *task]
    code, out, err = bert_tfx(*command)
    assert code == 0, out + err

    summary = summary_of(run_dir / "sst-2")
    assert summary["task"] == "sst-2" and summary["pushed_version"]
    served = run_dir / "serving" / summary_of(run_dir)["pushed_version"]
    (request,) = (run_dir / "sst-2" / "compiled").glob("*.json")
    assert json.loads(request.read_text())["init"] == str(served)
    first_row = (data / "test.tsv").read_text().splitlines()[1].split("\t")[1]
    asked = out.splitlines().index(first_row)
    answers = [json.loads(line) for line in out.splitlines()[asked + 3 : asked + 6]]
    assert {answer["label"] for answer in answers} <= {"0", "1"} and len(answers) == 3

    _, again, _ = bert_tfx(*command)
    assert again.splitlines()[-5:-1] == out.splitlines()[-5:-1]  # from the cache
