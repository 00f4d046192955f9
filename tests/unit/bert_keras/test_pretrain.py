"""The Trainer's entry point: examples that do not fit are refused by name, others end as a SavedModel."""

import dataclasses
import hashlib
import json
import shutil
import types
from pathlib import Path

import pytest
import tensorflow as tf

from bert_keras.config import BertConfig, SecondPhase, TrainingConfig
from bert_keras.features import ExampleSpec
from bert_keras.masking import MaskingSettings, mask_tokens
from bert_keras.phases import ExampleSet, Phase
from bert_keras.pretrain import check_enough_examples, check_examples_fit, load_tokenizer, run_fn
from bert_keras.unigram import unigram_perplexity

SPEC = ExampleSpec(128, 20, 1000, "", 500, 50)
MODEL = BertConfig(vocab_size=1000)


def test_examples_that_fit_pass():
    check_examples_fit(SPEC, MODEL)
    check_enough_examples(Phase(ExampleSet(SPEC, [], []), 0, 10, 500, 0))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"vocab_size": 999}, "a vocabulary of 999 tokens, the model has model.vocab_size=1000"),
        ({"max_seq_length": 513}, "513 tokens long, the model has model.max_position_embeddings=512"),
    ],
)
def test_examples_that_do_not_fit_are_refused_by_name(spec, message):
    with pytest.raises(ValueError, match=message):
        check_examples_fit(dataclasses.replace(SPEC, **spec), MODEL)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"train_examples": 255},
            "255 training and 50 held-out examples of 128 .* too few for a train_batch_size of 256",
        ),
        ({"eval_examples": 0}, "500 training and 0 held-out examples of 128 tokens are too few"),
    ],
)
def test_too_few_examples_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        check_enough_examples(Phase(ExampleSet(dataclasses.replace(SPEC, **spec), [], []), 0, 10, 256, 0))


def test_another_vocabulary_beside_the_examples_is_refused(examples, tmp_path):
    shutil.copytree(examples.dir, tmp_path, dirs_exist_ok=True)
    other = "\n".join(reversed(examples.vocabulary)) + "\n"
    (tmp_path / "vocab.txt").write_text(other)
    with pytest.raises(ValueError, match=r"vocab\.txt is not the file that vocab_spec\.json beside it is of"):
        load_tokenizer(str(tmp_path), ExampleSpec.load(str(tmp_path)))
    spec = {
        "algorithm": "wordpiece",
        "lower_case": True,
        "vocabulary_sha256": hashlib.sha256(other.encode()).hexdigest(),
    }
    (tmp_path / "vocab_spec.json").write_text(json.dumps(spec))
    with pytest.raises(ValueError, match="the vocabulary beside the examples is not the one that made them"):
        load_tokenizer(str(tmp_path), ExampleSpec.load(str(tmp_path)))


def test_a_vocabulary_that_the_exported_model_cannot_use_is_refused(examples, tmp_path):
    shutil.copytree(examples.dir, tmp_path, dirs_exist_ok=True)
    spec = json.loads((tmp_path / "vocab_spec.json").read_text()) | {"algorithm": "byte_bpe"}
    (tmp_path / "vocab_spec.json").write_text(json.dumps(spec))
    with pytest.raises(
        ValueError, match=r"of vocabulary\.algorithm='byte_bpe', which .* yet: learn one with 'wordpiece'"
    ):
        load_tokenizer(str(tmp_path), ExampleSpec.load(str(tmp_path)))


def trainer_arguments(examples, tmp_path):
    model = BertConfig(len(examples.vocabulary), 16, 1, 1, 32, max_position_embeddings=16)
    training = TrainingConfig(
        train_batch_size=8,
        num_train_steps=4,
        num_warmup_steps=1,
        steps_per_execution=2,
        eval_batch_size=4,
        eval_batches=1,
    )
    return types.SimpleNamespace(
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


def test_run_fn_trains_and_exports(examples, tmp_path):
    arguments = trainer_arguments(examples, tmp_path)
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


def test_run_fn_trains_in_two_phases(examples, tmp_path):
    """Six steps on rows of 16 tokens, two on longer ones, in batches of another size, which the export is made for."""
    longer = tmp_path / "longer"
    shutil.copytree(examples.dir, longer)
    for path in longer.glob("Split-*/*"):
        records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                stored = tf.train.Example.FromString(record)
                for name in ("input_ids", "input_mask", "segment_ids"):
                    stored.features.feature[name].int64_list.value.extend([0] * 8)
                writer.write(stored.SerializeToString())
    spec = json.loads((longer / "example_spec.json").read_text())
    (longer / "example_spec.json").write_text(json.dumps(spec | {"max_seq_length": 24}))
    arguments = trainer_arguments(examples, tmp_path)
    custom = arguments.custom_config
    custom["model"]["max_position_embeddings"] = 24
    custom["training"] |= {"num_train_steps": 8, "save_checkpoints_steps": 3}
    custom["second_phase"] = dataclasses.asdict(SecondPhase(2, 4, 24, 3))
    arguments.train_files.insert(0, f"{longer}/Split-train/*")
    arguments.eval_files.insert(0, f"{longer}/Split-eval/*")
    run_fn(arguments)
    log = [json.loads(line) for line in (tmp_path / "model_run" / "log.jsonl").read_text().splitlines()]
    steps = {line["step"]: line for line in log if line["kind"] == "train"}
    assert list(steps) == [2, 3, 5, 6, 8]
    padded = {step: line["tokens_per_second"] / line["useful_tokens_per_second"] for step, line in steps.items()}
    assert padded == pytest.approx(dict.fromkeys([2, 3, 5, 6], 16 / 14) | {8: 24 / 14})
    assert ExampleSpec.load(arguments.serving_model_dir).max_seq_length == 24
    custom["second_phase"]["num_train_steps"] = 3
    arguments.serving_model_dir = str(tmp_path / "model2")
    run_fn(arguments)
    assert len(list(Path(tmp_path / "training").iterdir())) == 2  # another run, with checkpoints of its own


def test_run_fn_trains_on_examples_that_are_masked_while_they_are_read(unmasked_examples, tmp_path, monkeypatch):
    """Trains to the end, with the masks of the settings in example_spec.json and the vocabulary beside them."""
    seen = []

    def mask(input_ids, input_mask, rng, settings, vocabulary, max_predictions, sequence_ids):
        seen.append((settings, vocabulary.mask_id, max_predictions))
        return mask_tokens(input_ids, input_mask, rng, settings, vocabulary, max_predictions, sequence_ids)

    monkeypatch.setattr("bert_keras.input_pipeline.mask_tokens", mask)
    spec = json.loads(Path(unmasked_examples.dir, "example_spec.json").read_text())
    changed = tmp_path / "examples"
    shutil.copytree(unmasked_examples.dir, changed)
    masking = {"when": "dynamic", "unit": "span", "rounding": "up", "max_predictions_per_seq": 3}
    (changed / "example_spec.json").write_text(json.dumps({**spec, "masking": masking}))
    arguments = trainer_arguments(unmasked_examples, tmp_path)
    arguments.train_files, arguments.eval_files = [f"{changed}/Split-train/*"], [f"{changed}/Split-eval/*"]
    run_fn(arguments)
    assert len(seen) >= 4
    assert set(seen) == {(MaskingSettings(**masking), 4, 3)}
    log = [json.loads(line) for line in (tmp_path / "model_run" / "log.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in log] == ["train", "train", "eval"]
    assert all(line["mlm_loss"] > 0 for line in log)  # there are predictions, held-out ones too
    assert "fill_mask" in tf.saved_model.load(arguments.serving_model_dir).signatures


def test_the_unigram_model_is_the_same_for_examples_stored_unmasked(examples, unmasked_examples):
    perplexities = [
        unigram_perplexity(ExampleSpec.load(stored.dir), stored.train, stored.eval)
        for stored in (examples, unmasked_examples)
    ]
    assert perplexities[0] == perplexities[1] > 1


def test_the_unigram_model_of_next_tokens(tmp_path):
    """[CLS] a b [SEP] to train, and each of 10 tokens once more, are 14. Held out, a, c and [SEP] are predicted."""
    spec = ExampleSpec(6, 0, 10, "", 1, 1, objective="left_to_right")
    for split, ids in {"train": [2, 5, 6, 3], "eval": [2, 5, 7, 3]}.items():
        example = tf.train.Example()
        padding = [0] * (6 - len(ids))
        for name, values in (
            ("input_ids", ids + padding), ("input_mask", [1] * len(ids) + padding), ("segment_ids", [0] * 6)
        ):  # fmt: skip
            example.features.feature[name].int64_list.value.extend(values)
        with tf.io.TFRecordWriter(f"{tmp_path}/{split}") as writer:
            writer.write(example.SerializeToString())
    perplexity = unigram_perplexity(spec, f"{tmp_path}/train", f"{tmp_path}/eval")
    assert perplexity == pytest.approx((14 / 2 * 14 / 1 * 14 / 2) ** (1 / 3))
