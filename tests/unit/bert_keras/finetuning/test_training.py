"""Fine-tuning: each kind learns 32 rows by heart, a killed run goes on as if nothing had happened."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import init_checkpoint
from bert_keras.finetuning.prediction import compiled, predict
from bert_keras.finetuning.teacher import Teacher
from bert_keras.finetuning.training import TrainedTask, fine_tune
from bert_keras.models.config import BertConfig
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from bert_keras.training.checkpoints import Checkpoints

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "far", "from", "it", "to", "see", "more"]
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *WORDS, *"abcdefghijklmnopqrstuvwxyz"[1:], "##s"], True)
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
CONFIG = BertConfig(
    len(TOKENIZER.vocabulary),
    **SIZES,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=24,
    initializer_range=0.2,  # so small a model would learn nothing for long
)
SETTINGS = TaskSettings(max_seq_length=24)
RUN = FineTuningConfig(
    num_train_epochs=30,
    train_batch_size=8,
    learning_rate=2e-3,
    eval_batch_size=8,
    weight_decay=0.0,
    eval_every_steps=60,
)


def texts(rng, rows, longest=8):
    """The first word says the row's number, modulo 6; the others say nothing."""
    return [" ".join([WORDS[i % 6], *rng.choice(WORDS[6:], rng.integers(2, longest))]) for i in range(rows)]


def classified(rng, rows):
    return [TaskRow(str(i), {"text": text}, ("neg", "pos")[i % 2]) for i, text in enumerate(texts(rng, rows))]


def of_several(rng, rows):
    golds = ([], ["even"], ["even", "low"])
    return [TaskRow(str(i), {"text": text}, golds[i % 3]) for i, text in enumerate(texts(rng, rows))]


def paired(rng, rows):
    golds = ("contradiction", "entailment", "neutral")
    both = zip(texts(rng, rows), texts(rng, rows), strict=True)
    return [TaskRow(str(i), {"text": a, "text_pair": b}, golds[i % 3]) for i, (a, b) in enumerate(both)]


def measured(rng, rows):
    both = zip(texts(rng, rows), texts(rng, rows), strict=True)
    return [TaskRow(str(i), {"text": a, "text_pair": b}, i % 6 * 0.8) for i, (a, b) in enumerate(both)]


def chosen(rng, rows):
    """The right choice begins with the first word, the others with others."""
    options = [rng.permutation(texts(rng, 3)).tolist() for _ in range(rows)]
    right = [[option.startswith(WORDS[0]) for option in of_row].index(True) for of_row in options]
    return [TaskRow(str(i), {"text": "see", "choices": tuple(options[i])}, right[i]) for i in range(rows)]


def tagged(rng, rows):
    """The tag of a word depends on the one before."""
    return [
        TaskRow(str(i), {"text": text}, ["BO"[word in WORDS[:9]] for word in ["the", *text.split(" ")[:-1]]])
        for i, text in enumerate(texts(rng, rows))
    ]


CASES = {
    "imdb": (classified, ("neg", "pos")),
    "mnli": (paired, ("contradiction", "entailment", "neutral")),
    "text-labels": (of_several, ("even", "low")),
    "sts-b": (measured, ()),
    "swag": (chosen, ()),
    "ner": (tagged, ("B", "O")),
}


def case(name, rows=32):
    make, labels = CASES[name]
    return dataclasses.replace(task_of(name), labels=labels), make(np.random.default_rng(3), rows)


def close(golds, answers):
    if isinstance(golds[0], float):
        return np.allclose(golds, answers, atol=0.39)
    return golds == answers


# Single texts of a classification are learned in test_finetune.py.
@pytest.mark.parametrize("name", [name for name in CASES if name != "imdb"])
def test_32_rows_are_learned_by_heart(name, tmp_path):
    task, rows = case(name)
    model = fine_tune(task, SETTINGS, RUN, init_checkpoint(CONFIG, TOKENIZER), rows, rows, str(tmp_path))
    answers = TrainedTask(model, task, SETTINGS, TOKENIZER).answers(rows, batch_size=5)
    assert close([row.gold for row in rows], answers)
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    last = [record for record in logged if record["kind"] == "eval"][-1]
    assert last["step"] == 120 and last["loss"] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "config"),
    [
        ("ner", {"features": "concat_last_four", "lstm_units": 16}, {"num_hidden_layers": 4}),
        ("ner", {"bilstm": True}, {"causal": True}),
        ("mnli", {"bilstm": True}, {"causal": True}),
    ],
)
def test_the_ablations_learn_too(name, settings, config, tmp_path):
    """Features of a frozen encoder under BiLSTMs (paper section 5.3), and left-to-right models (section 5.1)."""
    task, rows = case(name, 16)
    settings = dataclasses.replace(SETTINGS, **settings)
    start = init_checkpoint(dataclasses.replace(CONFIG, **config), TOKENIZER)
    run = dataclasses.replace(RUN, num_train_epochs=120)
    model = fine_tune(task, settings, run, start, rows, rows, str(tmp_path))
    assert TrainedTask(model, task, settings, TOKENIZER).answers(rows, 8) == [row.gold for row in rows]


def test_a_killed_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    """With a teacher, so its answers are those of the same rows again."""
    task, rows = case("mnli")
    start = init_checkpoint(dataclasses.replace(CONFIG, hidden_dropout_prob=0.1), TOKENIZER)
    run = dataclasses.replace(RUN, num_train_epochs=5, save_checkpoints_steps=7)
    model = task_type_of(task).create_model(CONFIG, task, SETTINGS, seed=5)
    model.build()
    teacher = Teacher(start, TrainedTask(model, task, SETTINGS, TOKENIZER), str(tmp_path / "teacher"))
    save = Checkpoints.save

    def killed(checkpoints, step):
        save(checkpoints, step)
        raise KeyboardInterrupt

    def tuned(folder):
        return fine_tune(task, SETTINGS, run, start, rows, rows, str(tmp_path / folder), teacher=teacher).get_weights()

    whole = tuned("whole")
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            tuned("killed")
    checkpoints = Path(tmp_path / "killed" / "checkpoints")
    assert (checkpoints / "ckpt-7.npz").exists() and not (checkpoints / "ckpt-20.npz").exists()
    for ours, theirs in zip(tuned("killed"), whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_finished_training_keeps_its_weights_alone(tmp_path, monkeypatch, capfd):
    """And is loaded from them, also if it was killed while the rest was deleted."""
    task, rows = case("mnli")
    run = dataclasses.replace(RUN, num_train_epochs=2, save_checkpoints_steps=3)
    checkpoints = tmp_path / "checkpoints"

    def tuned():
        return fine_tune(task, SETTINGS, run, init_checkpoint(CONFIG, TOKENIZER), rows, rows, str(tmp_path))

    def kept():
        return {path.stem for path in checkpoints.iterdir()}

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            tuned()
    assert kept() == {"ckpt-3", "ckpt-6", "ckpt-8", "finished"}
    log = (tmp_path / "log.jsonl").read_bytes()
    model = tuned()
    assert "damaged" not in capfd.readouterr().err
    assert kept() == {"finished"} and (tmp_path / "log.jsonl").read_bytes() == log
    size = (checkpoints / "finished.npz").stat().st_size
    assert size < 1.1 * sum(weight.nbytes + 512 for weight in model.get_weights())  # a header each
    for ours, theirs in zip(tuned().get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# A task of each shape of outputs.
@pytest.mark.parametrize("name", ["mnli", "sts-b", "swag", "ner"])
def test_trimmed_batches_change_no_output(name):
    """Of rows of all lengths in one batch or each in its own, as long as the longest row or as the row itself."""
    task, rows = case(name, 9)
    model = task_type_of(task).create_model(CONFIG, task, SETTINGS, 4)
    model.build()
    features = task_type_of(task).features(rows, task, SETTINGS, TOKENIZER)
    inputs = {name: features.arrays[name] for name in ("input_ids", "input_mask", "segment_ids")}
    assert len(set(inputs["input_mask"].sum(-1).ravel())) > 3
    whole = np.asarray(model(inputs, training=False))
    if name == "ner":
        whole = whole * features.arrays["input_mask"][..., None]
    call = compiled(model, features)
    for batch_size in (1, 4, 100):
        found = predict(model, features, batch_size, call)
        found = found * features.arrays["input_mask"][..., None] if name == "ner" else found
        assert found.shape == whole.shape and np.ptp(found) > 0.05
        np.testing.assert_allclose(found, whole, rtol=0, atol=1e-5 * np.abs(whole).max())


def test_steps_follow_from_rows_and_epochs():
    run = FineTuningConfig().training_config(3668)  # MRPC
    assert (run.num_train_steps, run.num_warmup_steps, run.train_batch_size) == (343, 34, 32)
    assert (run.learning_rate, run.schedule, run.optimizer, run.weight_decay) == (5e-5, "bert", "bert_adam", 0.01)
    # README of the original: SQuAD 1.1's 87,599 examples in batches of 12, twice: int(87599 / 12 * 2).
    assert FineTuningConfig(train_batch_size=12, num_train_epochs=2).training_config(87599).num_train_steps == 14599


def test_invalid_settings_are_named():
    with pytest.raises(
        InputError, match=r"9 training rows, 3 times, are not one batch of training.train_batch_size=32"
    ):
        FineTuningConfig().training_config(9)
    with pytest.raises(ValueError, match=r"training\.num_train_epochs is 0; it must be above 0"):
        FineTuningConfig(num_train_epochs=0)
    with pytest.raises(ValueError, match=r"training\.learning_rate is -1"):
        FineTuningConfig(learning_rate=-1)
    with pytest.raises(ValueError, match=r"training\.mixed_precision is 'bfloat16'; it must be float32 or mixed_"):
        FineTuningConfig(mixed_precision="bfloat16")
    with pytest.raises(ValueError, match=r"task\.truncation is 'middle'; it must be head, tail or head_tail"):
        TaskSettings(truncation="middle")
    with pytest.raises(ValueError, match=r"task\.bilstm is True and task\.features is 'last'"):
        TaskSettings(bilstm=True, features="last")


def test_rows_without_golds_cannot_be_learned(tmp_path):
    task, rows = case("imdb")
    start = init_checkpoint(CONFIG, TOKENIZER)
    unknown = [dataclasses.replace(row, gold=None) for row in rows]
    with pytest.raises(InputError, match="imdb has 0 training rows; give some"):
        fine_tune(task, SETTINGS, RUN, start, [], rows, str(tmp_path))
    with pytest.raises(InputError, match="imdb has 32 held-out rows, without golds; give some"):
        fine_tune(task, SETTINGS, RUN, start, rows, unknown, str(tmp_path))
    with pytest.raises(InputError, match=r"task\.max_seq_length is 128, but the model has positions for 24"):
        fine_tune(task, TaskSettings(), RUN, start, rows, rows, str(tmp_path))
