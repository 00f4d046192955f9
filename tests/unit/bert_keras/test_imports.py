"""A training on JAX needs no TensorFlow: not for its imports, its models, its input, its log or its folder."""

import pytest

from tests.support.processes import run_python

# Refuses the import of what may be missing, and records it: where it is installed, a try would take seconds.
REFUSED = """
import importlib.util, sys
tried = []
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tensorflow_text", "tfx", "apache_beam"):
            return importlib.util.spec_from_loader(name, self)
    def create_module(self, spec):
        tried.append(spec.name)
        raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)
    def exec_module(self, module):
        pass
sys.meta_path.insert(0, Refuse())
"""
IMPORTS = """
import importlib, pkgutil
names = ["bert_keras.jobs", "components.code_version", "pipeline.commands.train", "pipeline.cli"]
for package, modules in {
    "bert_keras.training": "checkpoint_dir config flops log mixed_examples optimizer phases preemption schedules",
    "bert_keras.tokenizers": "byte_bpe protocol sentencepiece vocabulary_files wordpiece",
}.items():
    names += [f"{package}.{module}" for module in modules.split()]
for package in (*map("bert_keras.{}".format, ("data", "models", "objectives", "tasks")), "pipeline.recipes"):
    path = importlib.import_module(package).__path__
    names += [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
for name in names:
    importlib.import_module(name)
assert len(names) > 70 and not tried, tried
"""
WORK = """
import os, sys
from dataclasses import replace
from bert_keras.data.tfrecord import read_records
from bert_keras.models.config import BertConfig
from bert_keras.objectives.registry import pretraining_model
from bert_keras.objectives.settings import PretrainingSettings
from bert_keras.tasks.rows import TaskRow, read_rows, write_rows
from bert_keras.tasks.settings import TaskSettings, TaskSpec
from bert_keras.tasks.table import TASKS
from bert_keras.tasks.task_types import task_type_of
from bert_keras.training import checkpoint_dir
from bert_keras.training.flops import Ceiling
from bert_keras.training.log import TrainingLog
root, config = sys.argv[1], BertConfig(30, 8, 1, 1, 16)
for family in ("bert", "gpt_bert", "spanbert", "electra"):
    create_model, objective = pretraining_model(PretrainingSettings(family), "full_sentences", config, 0)
    assert create_model().count_params() > 0 and objective.sums
for task in {task.kind: replace(task, labels=("a", "b")) for task in TASKS.values()}.values():
    task_type = task_type_of(task)
    assert task_type.create_model(config, task, TaskSettings(), 0).backbone and task_type.objective.sums
assert Ceiling(1, "float32").utilization(1.0) < 1e-6
rows = [TaskRow("7", {"text": "ü"}, "pos"), TaskRow("8", {"text": "b"}, "neg", "web")]
write_rows(f"{root}/rows", TASKS["imdb"], {"train": rows, "eval": []})
with open(f"{root}/rows/Split-train/examples-00000-of-00001.tfrecord", "rb") as file:
    assert list(read_rows(read_records(file))) == rows
assert TaskSpec.load(f"{root}/rows") == TaskSpec(TASKS["imdb"], {"train": 2, "eval": 0})
folder = checkpoint_dir.run_folder(f"{root}/runs", {"seed": 1}, [f"{root}/rows"])
checkpoint_dir.tell_what_changed(folder, {"seed": 1})
log = TrainingLog(folder, 0)
log.write("train", 1, {"loss": 2.0})
checkpoint_dir.copy_logs(folder, f"{root}/logs")
assert sorted(os.listdir(f"{root}/logs")) == ["log.jsonl", "tensorboard"]
assert not tried, tried
"""


@pytest.mark.programs
def test_a_training_on_jax_does_without_tensorflow(tmp_path):
    run_python("-c", REFUSED + IMPORTS + WORK, tmp_path, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
