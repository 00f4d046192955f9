"""The Trainer's entry point: examples that do not fit are refused by name, others end as a SavedModel."""

import dataclasses
import hashlib
import json
import shutil
import types
from pathlib import Path

import pytest
import tensorflow as tf

from bert_keras.config import BertConfig, TrainingConfig
from bert_keras.features import ExampleSpec
from bert_keras.pretrain import check_examples_fit, load_tokenizer, run_fn

SPEC = ExampleSpec(128, 20, 1000, "", 500, 50)
MODEL = BertConfig(vocab_size=1000)
RUN = TrainingConfig()


def test_examples_that_fit_pass():
    check_examples_fit(SPEC, MODEL, RUN)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"vocab_size": 999}, "a vocabulary of 999 tokens, the model has model.vocab_size=1000"),
        ({"max_seq_length": 513}, "513 tokens long, the model has model.max_position_embeddings=512"),
        ({"train_examples": 255}, "255 training and 50 held-out examples are too few .* training.train_batch_size=256"),
        ({"eval_examples": 0}, "500 training and 0 held-out examples are too few"),
    ],
)
def test_examples_that_do_not_fit_are_refused_by_name(spec, message):
    with pytest.raises(ValueError, match=message):
        check_examples_fit(dataclasses.replace(SPEC, **spec), MODEL, RUN)


def test_another_vocabulary_beside_the_examples_is_refused(examples, tmp_path):
    shutil.copytree(examples.dir, tmp_path, dirs_exist_ok=True)
    other = "\n".join(reversed(examples.vocabulary)) + "\n"
    (tmp_path / "vocab.txt").write_text(other)
    with pytest.raises(ValueError, match=r"vocab\.txt is not the file that vocab_spec\.json beside it is of"):
        load_tokenizer(str(tmp_path), ExampleSpec.load(str(tmp_path)))
    spec = {"lower_case": True, "vocabulary_sha256": hashlib.sha256(other.encode()).hexdigest()}
    (tmp_path / "vocab_spec.json").write_text(json.dumps(spec))
    with pytest.raises(ValueError, match="the vocabulary beside the examples is not the one that made them"):
        load_tokenizer(str(tmp_path), ExampleSpec.load(str(tmp_path)))


def test_run_fn_trains_and_exports(examples, tmp_path):
    model = BertConfig(len(examples.vocabulary), 16, 1, 1, 32, max_position_embeddings=16)
    training = TrainingConfig(
        train_batch_size=8,
        num_train_steps=4,
        num_warmup_steps=1,
        steps_per_execution=2,
        eval_batch_size=4,
        eval_batches=1,
    )
    arguments = types.SimpleNamespace(
        train_files=[examples.train],
        eval_files=[examples.eval],
        serving_model_dir=str(tmp_path / "model"),
        model_run_dir=str(tmp_path / "model_run"),
        custom_config={
            "model": dataclasses.asdict(model),
            "training": dataclasses.asdict(training),
            "training_root": str(tmp_path / "training"),
        },
    )
    run_fn(arguments)
    served = tf.saved_model.load(arguments.serving_model_dir)
    assert "fill_mask" in served.signatures
    assert ExampleSpec.load(arguments.serving_model_dir) == ExampleSpec.load(examples.dir)
    assert len((tmp_path / "model_run" / "log.jsonl").read_text().splitlines()) == 3
    assert list((tmp_path / "model_run").rglob("events*"))

    # Other settings are another run: they get checkpoints of their own.
    arguments.custom_config["training"]["learning_rate"] = 0.5
    arguments.serving_model_dir = str(tmp_path / "model2")
    run_fn(arguments)
    assert len(list(Path(tmp_path / "training").iterdir())) == 2
