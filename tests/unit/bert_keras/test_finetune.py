"""The Trainer's entry point for tasks: rows in shards in; scores, prediction files and a SavedModel out."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.errors import InputError
from bert_keras.finetune import run_fn
from bert_keras.heads import BertForPreTraining
from bert_keras.interchange.huggingface import write_huggingface
from bert_keras.interchange.pushed import read_pushed
from bert_keras.tasks.predictions import read_predictions
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.scores import score
from bert_keras.tasks.settings import TASK_SPEC_FILE, TaskSpec
from bert_keras.tasks.table import task_of
from bert_keras.tokenizer import SPECIAL_TOKENS, BertTokenizer

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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of all, and the arguments of the run that was made there."""
    root = tmp_path_factory.mktemp("run")
    for split, of_split in SPLITS.items():
        (root / "rows" / f"Split-{split}").mkdir(parents=True)
        path = root / "rows" / f"Split-{split}" / "examples-00000-of-00001.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for row in of_split:
                features = {
                    name: tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
                    for name, values in row.to_features().items()
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    counts = {split: len(of_split) for split, of_split in SPLITS.items()}
    (root / "rows" / TASK_SPEC_FILE).write_text(TaskSpec(TASK, counts).to_json())
    model = BertForPreTraining(CONFIG, seed=3)
    model.build()
    write_huggingface(model, TOKENIZER, str(root / "init"))
    run_fn(arguments(root, "first"))
    return root


def arguments(root, name, **custom):
    return types.SimpleNamespace(
        train_files=[str(root / "rows" / "Split-train" / "*")],
        eval_files=[str(root / "rows" / "Split-eval" / "*")],
        serving_model_dir=str(root / name / "model"),
        model_run_dir=str(root / name / "run"),
        hyperparameters=None,
        custom_config={
            "task": "sst-2",
            "task_settings": {"max_seq_length": 16},
            "training": {"num_train_epochs": 20, "train_batch_size": 8, "learning_rate": 5e-3, "eval_batch_size": 8},
            "restarts": {},
            "init": str(root / "init"),
            "training_root": str(root / "training"),
            **custom,
        },
    )


def test_scores_and_predictions_are_those_of_the_exported_model(trained):
    run = trained / "first" / "run"
    answers = read_predictions(TASK, SPLITS["eval"], str(run / "predictions" / "eval" / "SST-2.tsv"))
    scores = json.loads((run / "scores.json").read_text())
    golds = [row.gold for row in SPLITS["eval"]]
    assert scores == {"eval": score(TASK, golds, answers)} and scores["eval"]["accuracy"] == 1.0
    served = tf.saved_model.load(str(trained / "first" / "model")).signatures["serving_default"]
    for split in ("eval", "test"):
        found = served(text=tf.constant([row.inputs["text"] for row in SPLITS[split]]))["label"]
        path = run / "predictions" / split / "SST-2.tsv"
        assert [label.decode() for label in found.numpy()] == read_predictions(TASK, SPLITS[split], str(path))
    logged = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert logged[-1]["official_accuracy"] == 1.0 and logged[-1]["step"] == 80


def test_a_finished_run_is_not_trained_again(trained):
    before = set((trained / "training").iterdir())
    run_fn(arguments(trained, "again"))
    assert set((trained / "training").iterdir()) == before
    first, again = (trained / name / "run" / "log.jsonl" for name in ("first", "again"))
    trainings = [[line for line in log.read_text().splitlines() if '"train"' in line] for log in (first, again)]
    assert trainings[0] == trainings[1] and trainings[0]


def test_the_exported_model_starts_another_run(trained):
    found = read_pushed(str(trained / "first" / "model"))
    assert found.lower_case and found.remarks and found.model.config == CONFIG
    training = {"num_train_epochs": 1, "train_batch_size": 8}
    run_fn(arguments(trained, "next", init=str(trained / "first" / "model"), training=training))
    assert len(list((trained / "training").iterdir())) == 2


def test_rows_of_another_task_are_refused(trained):
    with pytest.raises(InputError, match=r"rows has the rows of sst-2, not of cola: make them again"):
        run_fn(arguments(trained, "wrong", task="cola"))
