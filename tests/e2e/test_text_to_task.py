"""`bert-tfx pretrain`, then `finetune` of what it pushed: text to a task's answers."""

import json

import pytest

from tests.support.pipeline.command_line import arguments, bert_tfx, set_words, summary_of
from tests.support.pipeline.task_files import write_task

TASK_SETTINGS = {
    "training.num_train_epochs": 1,
    "task.max_seq_length": 32,
    "gate.min_score": 0,
    "gate.allow_chance": "true",
}


@pytest.mark.slow  # other tests have its parts
@pytest.mark.parametrize("recipe", ["tiny_cpu", "roberta_tiny", "elmo_tiny"])
def test_a_pushed_model_is_fine_tuned(recipe, corpus, tmp_path):
    data, run_dir = write_task("sst-2", tmp_path / "data"), tmp_path / "run"
    _, _, *words = arguments(corpus, run_dir, gate__min_mlm_accuracy=0)
    code, out, err = bert_tfx("pretrain", recipe, *words)
    assert code == 0, out + err
    served = run_dir / "serving" / summary_of(run_dir)["pushed_version"]
    frozen = {"task.features": "weighted_sum_all", "task.lstm_units": 8} if recipe == "elmo_tiny" else {}
    words = ("--data", data, "--init", served, "--run-dir", tmp_path / "task", *set_words(TASK_SETTINGS | frozen))
    code, out, err = bert_tfx("finetune", "sst-2", *words)
    assert code == 0, out + err
    summary = summary_of(tmp_path / "task")
    assert summary["task"] == "sst-2" and summary["pushed_version"]
    (spec,) = (tmp_path / "task" / "compiled").glob("*.json")
    assert json.loads(spec.read_text())["request"]["init"] == str(served)
