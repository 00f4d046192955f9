"""Fine-tuning: rows in shards in; scores, prediction files and a SavedModel out."""

import dataclasses
import json
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.errors import InputError, StageError
from bert_keras.finetuning.fine_tuner import FineTuner
from bert_keras.finetuning.finetune import finetune
from bert_keras.jobs import FinetuneJob
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.rows import TaskRow, write_rows
from bert_keras.tasks.settings import TASK_SPEC_FILE, FineTuningConfig, TaskSettings, TaskSpec
from bert_keras.tasks.submissions.prediction_files import read_predictions
from bert_keras.tasks.table import task_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import read_pushed, write_huggingface
from tests.support.models.pushed_folders import without_graph

WORDS = ["good", "bad", "the", "film", "was", "very", "plot"]
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *WORDS], True)
CONFIG = BertConfig(12, 16, 1, 2, 32, 0.0, 0.0, max_position_embeddings=16, initializer_range=0.2)
TASK = task_of("sst-2")


def rows(count, seed, known=True):
    rng = np.random.default_rng(seed)
    return [
        TaskRow(
            str(i), {"text": " ".join([WORDS[1 - i % 2], *rng.choice(WORDS[2:], 4)])}, str(i % 2) if known else None
        )
        for i in range(count)
    ]


SPLITS = {"train": rows(32, 0), "eval": rows(20, 1), "test": rows(8, 2, known=False)}


@pytest.fixture
def not_exported(monkeypatch):
    """Skip the export, which takes longer than the training."""
    monkeypatch.setattr("bert_keras.finetuning.finetune.export_task_model", lambda *_: None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of rows, an initial checkpoint and the first job's results, with the signatures of its model."""
    root = tmp_path_factory.mktemp("run")
    write_rows(str(root / "rows"), TASK, SPLITS)
    spec = dataclasses.replace(TaskSpec.load(str(root / "rows")), held_out="0.1 by seed 3")
    (root / "rows" / TASK_SPEC_FILE).write_text(spec.to_json())
    model = BertForPreTraining(CONFIG, seed=3)
    model.build()
    write_huggingface(model, TOKENIZER, str(root / "init"))
    with without_graph() as exported:
        finetune(job_of(root, "first"))
    return types.SimpleNamespace(root=root, signatures=exported[0])


def job_of(root, name, **fields):
    job = FinetuneJob(
        rows=str(root / "rows"),
        task="sst-2",
        task_settings=TaskSettings(max_seq_length=16),
        init=str(root / "init"),
        training=FineTuningConfig(num_train_epochs=20, train_batch_size=8, learning_rate=5e-3, eval_batch_size=8),
        output_dir=str(root / name / "model"),
        logs_dir=str(root / name / "run"),
        training_root=str(root / "training"),
        code="of this test",
    )
    return dataclasses.replace(job, **fields)


def test_scores_and_predictions_are_those_of_the_exported_model(trained):
    run = trained.root / "first" / "run"
    answers = read_predictions(TASK, SPLITS["eval"], str(run / "predictions" / "eval" / "SST-2.tsv"))
    scores = json.loads((run / "scores.json").read_text())
    golds = [row.gold for row in SPLITS["eval"]]
    assert scores == {"eval": score(TASK, golds, answers)} and scores["eval"]["accuracy"] == 1.0
    served = trained.signatures["serving_default"]
    for split in ("eval", "test"):
        found = served(text=tf.constant([row.inputs["text"] for row in SPLITS[split]]))["label"]
        path = run / "predictions" / split / "SST-2.tsv"
        assert [label.decode() for label in found.numpy()] == read_predictions(TASK, SPLITS[split], str(path))
    logged = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert logged[-1]["official_accuracy"] == 1.0 and logged[-1]["step"] == 80


def test_the_model_knows_what_was_held_out_of_its_training(trained):
    assert TaskSpec.load(str(trained.root / "first" / "model")) == TaskSpec(TASK, {}, held_out="0.1 by seed 3")


def test_a_finished_run_is_not_trained_again(trained, not_exported):
    before = set((trained.root / "training").iterdir())
    finetune(job_of(trained.root, "again"))
    assert set((trained.root / "training").iterdir()) == before
    first, again = (trained.root / name / "run" / "log.jsonl" for name in ("first", "again"))
    trainings = [[line for line in log.read_text().splitlines() if '"train"' in line] for log in (first, again)]
    assert trainings[0] == trainings[1] and trainings[0]


def test_other_code_is_another_run(trained):
    one, other = (FineTuner.from_job(job_of(trained.root, "none", code=code)) for code in ("one", "other"))
    assert one.folder(FineTuningConfig()) != other.folder(FineTuningConfig())


def test_the_exported_model_starts_another_run(trained, not_exported):
    found = read_pushed(str(trained.root / "first" / "model"))
    assert found.tokenizer.normalization.lower_case and found.remarks and found.model.config == CONFIG
    training = FineTuningConfig(num_train_epochs=1, train_batch_size=8)
    finetune(job_of(trained.root, "next", init=str(trained.root / "first" / "model"), training=training))
    assert len(list((trained.root / "training").iterdir())) == 2


def test_rows_of_another_task_are_refused(trained):
    with pytest.raises(InputError, match=r"rows has the rows of sst-2, not of cola: make them again"):
        finetune(job_of(trained.root, "wrong", task="cola"))


def test_a_vocabulary_of_another_language_is_refused_before_training(trained, not_exported):
    """The words of the rows are not in it; under the one that they were made for none is unknown."""
    korean = BertTokenizer([*SPECIAL_TOKENS, *"\u1100\u1102\u1103\u1105\u1106\u1107\u1109"], True)
    model = BertForPreTraining(CONFIG)
    model.build()
    write_huggingface(model, korean, str(trained.root / "korean"))
    before = set((trained.root / "training").iterdir())
    with pytest.raises(StageError, match=r"100\.0% of the pieces of 52 rows are \[UNK\] .* at most 2\.0% are allowed"):
        finetune(job_of(trained.root, "unknown", init=str(trained.root / "korean"), max_unknown_fraction=0.02))
    assert set((trained.root / "training").iterdir()) == before
    finetune(job_of(trained.root, "known", max_unknown_fraction=0.0))
