"""Jobs survive JSON, and refuse what they do not know."""

import dataclasses
import json

import pytest

from bert_keras.jobs import FinetuneJob, PretrainJob
from bert_keras.models.config import BertConfig
from bert_keras.objectives.settings import DistillationSettings, PretrainingSettings
from bert_keras.saved_model.settings import ExportSettings
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings, SearchSettings, TaskSettings
from bert_keras.training.config import SecondPhase, TrainingConfig

FOLDERS = {"output_dir": "out", "logs_dir": "logs", "training_root": "checkpoints", "code": "abc", "stage_code": "def"}
TEACHER = {"teacher": "teacher", "teacher_fingerprint": "ghi", "distillation": DistillationSettings(0.9)}
# Every field has another value than its default.
JOBS = (
    PretrainJob(
        examples=("short", "long"),
        init="bert",
        model=BertConfig(hidden_size=128, num_attention_heads=2),
        training=TrainingConfig(learning_rate=2e-4),
        second_phase=SecondPhase(num_train_steps=10),
        pretraining=PretrainingSettings("electra"),
        export=ExportSettings("mixed_bfloat16"),
        **FOLDERS,
        **TEACHER,
    ),
    FinetuneJob(
        rows="rows",
        task="mnli",
        task_settings=TaskSettings(max_seq_length=64),
        init="init",
        init_fingerprint="def",
        cased=False,
        model=BertConfig(num_hidden_layers=2),
        vocabulary="vocabulary",
        training=FineTuningConfig(seed=1),
        search=SearchSettings(True, learning_rate=(1e-4,)),
        restarts=RestartSettings(3, 2),
        max_unknown_fraction=0.1,
        export=ExportSettings("mixed_bfloat16"),
        **FOLDERS,
        **TEACHER,
    ),
)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: type(job).__name__)
def test_a_job_survives_json(job):
    assert type(job).from_fields(json.loads(json.dumps(dataclasses.asdict(job)))) == job
    for field in dataclasses.fields(job):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        assert getattr(job, field.name) != default


def test_what_is_missing_has_its_default():
    fields = {"examples": ["folder"], "model": {}, "training": {"seed": 3}, **FOLDERS}
    expected = PretrainJob(examples=("folder",), model=BertConfig(), training=TrainingConfig(seed=3), **FOLDERS)
    assert PretrainJob.from_fields(fields) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainings": {}}, r"trainings\n"),
        ({"training": {"epochs": 3}}, r"training\.epochs\n"),
        ({"training": {"num_train_epochs": 0}}, r"training\.num_train_epochs is 0"),
        ({"training": {"seed": "one"}}, r"training\.seed\n"),
    ],
)
def test_an_unknown_field_or_value_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        FinetuneJob.from_fields({"rows": "rows", "task": "mnli", **FOLDERS, **change})
