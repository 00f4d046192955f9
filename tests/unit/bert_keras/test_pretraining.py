"""Pre-training: examples that do not fit are refused by name, others end as a SavedModel."""

import dataclasses
import hashlib
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from bert_keras.data.example_format import ExampleSpec, Shard
from bert_keras.data.masking import MaskingSettings, mask_tokens
from bert_keras.data.tfrecord_batches import eval_batches, shard_files
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.objectives.next_token import next_tokens
from bert_keras.objectives.settings import PretrainingSettings
from bert_keras.objectives.unigram import guessed_sums, neighbour_vectors, unigram_model
from bert_keras.pretraining import check_enough_examples, check_examples_fit, load_tokenizer, pretrain
from bert_keras.training.config import SecondPhase, TrainingConfig
from bert_keras.training.mixed_examples import text_never_read
from bert_keras.training.phases import ExampleSet, Phase, phases_of
from components.trainer.initial_model import export_initial_model
from tests.support.models.model_folders import assert_equal, read_any
from tests.support.models.pretrain_jobs import MODEL as TINY
from tests.support.models.pretrain_jobs import STANDING, change_examples, change_spec, not_exported, pretrain_job
from tests.support.models.pushed_folders import without_graph

SPEC = ExampleSpec(128, 20, 1000, "", 500, 50)
MODEL = BertConfig(vocab_size=1000)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"vocab_size": 999}, "a vocabulary of 999 tokens, the model has model.vocab_size=1000"),
        ({"max_seq_length": 513}, "513 tokens long, the model has model.max_position_embeddings=512"),
        ({"train_examples": 255}, "255 training and 50 held-out examples of 128 .* for a train_batch_size of 256"),
        ({"eval_examples": 0}, "500 training and 0 held-out examples of 128 tokens are too few"),
    ],
)
def test_examples_that_do_not_fit_are_refused_by_name(spec, message):
    spec = dataclasses.replace(SPEC, **spec)
    with pytest.raises(ValueError, match=message):
        check_examples_fit(spec, MODEL)
        check_enough_examples(Phase(ExampleSet(spec, [], []), 0, 10, 256, 0))


@pytest.mark.parametrize(
    ("steps", "ramp", "warning"),
    [
        (10, 0, "1,000 examples of 128 tokens are read, and a pass over the documents has 1,200: 17% of the text"),
        (12, 0, None),
        # 8 steps in batches of 50.
        (15, 8, "1,100 examples of 128 tokens are read, and a pass over the documents has 1,200: 8% of the text"),
        (16, 8, None),
    ],
)
def test_fewer_examples_than_a_pass_has_are_told(steps, ramp, warning):
    """A pass of 1,200, in two shards, batches of 100."""
    shards = [Shard(str(index), index // 2, 600 - index // 2, 0, "") for index in range(4)]
    examples, longer = ExampleSet(SPEC, shards, []), ExampleSet(dataclasses.replace(SPEC, max_seq_length=256), [], [])
    grows = {"batch_ramp_from": 50 * bool(ramp), "batch_ramp_steps": ramp}
    config = TrainingConfig(train_batch_size=100, num_train_steps=steps, num_warmup_steps=0, **grows)
    phases = phases_of(config, SecondPhase(0), [examples, longer])
    found = text_never_read(phases, examples)
    assert found is None if warning is None else found.startswith(warning)
    assert text_never_read(phases, longer) is None


def test_another_vocabulary_beside_the_examples_is_refused(examples, tmp_path):
    shutil.copytree(examples.dir, tmp_path, dirs_exist_ok=True)
    other = "\n".join(reversed(examples.vocabulary)) + "\n"
    (tmp_path / "vocab.txt").write_text(other)
    with pytest.raises(ValueError, match=r"vocab\.txt is not the file that vocab_spec\.json beside it describes"):
        load_tokenizer(str(tmp_path), ExampleSpec.load(str(tmp_path)))
    spec = {"algorithm": "wordpiece", "lower_case": True}
    spec["vocabulary_sha256"] = hashlib.sha256(other.encode()).hexdigest()
    (tmp_path / "vocab_spec.json").write_text(json.dumps(spec))
    with pytest.raises(ValueError, match="the vocabulary beside the examples is not the one that made them"):
        load_tokenizer(str(tmp_path), ExampleSpec.load(str(tmp_path)))


@pytest.fixture(scope="module")
def trained_folder(examples, tmp_path_factory):
    """A model of four steps, in this project's format; `model_run` is beside it."""
    folder = tmp_path_factory.mktemp("trained")
    job = pretrain_job(examples.dir, folder)
    pretrain(dataclasses.replace(job, training=dataclasses.replace(job.training, seed=99)))
    return str(folder / "model")


def test_pretrain_trains_and_exports(examples, trained_folder):
    (graph,) = SavedModel.FromString(Path(trained_folder, "saved_model.pb").read_bytes()).meta_graphs
    assert "fill_mask" in graph.signature_def
    assert ExampleSpec.load(trained_folder) == ExampleSpec.load(examples.dir)
    logs = Path(trained_folder).parent / "model_run"
    assert len((logs / "log.jsonl").read_text().splitlines()) == 3
    assert list(logs.rglob("events*"))


def test_pretrain_trains_in_two_phases(examples, tmp_path, monkeypatch):
    """Six steps on rows of 16 tokens, two on longer ones in other batches, whose specification the export has."""

    def lengthen(features):
        for name in ("input_ids", "input_mask", "segment_ids"):
            features[name].int64_list.value.extend([0] * 8)

    longer = Path(shutil.copytree(examples.dir, tmp_path / "longer"))
    change_examples(longer, lengthen)
    change_spec(longer, max_seq_length=24)
    job = pretrain_job(examples.dir, tmp_path)
    job = dataclasses.replace(
        job,
        examples=(str(longer), *job.examples),
        model=dataclasses.replace(job.model, max_position_embeddings=24),
        training=dataclasses.replace(job.training, num_train_steps=8, save_checkpoints_steps=3),
        second_phase=SecondPhase(2, 4, 24, 3),
    )
    monkeypatch.setattr("bert_keras.saved_model.pretrained.export_saved_model", not_exported)
    pretrain(job)
    log = [json.loads(line) for line in (tmp_path / "model_run" / "log.jsonl").read_text().splitlines()]
    steps = {line["step"]: line for line in log if line["kind"] == "train"}
    assert list(steps) == [2, 3, 4, 6, 8]
    padded = {step: line["tokens_per_second"] / line["useful_tokens_per_second"] for step, line in steps.items()}
    assert padded == pytest.approx(dict.fromkeys([2, 3, 4, 6], 16 / 14) | {8: 24 / 14})
    assert ExampleSpec.load(job.output_dir).max_seq_length == 24


@pytest.mark.slow
def test_pretrain_trains_on_examples_that_are_masked_while_they_are_read(unmasked_examples, tmp_path, monkeypatch):
    """Trains to the end, with the masks of the settings in example_spec.json and the vocabulary beside them."""
    seen = []

    def mask(input_ids, input_mask, rng, settings, vocabulary, max_predictions, sequence_ids):
        seen.append((settings, vocabulary.mask_id, max_predictions))
        return mask_tokens(input_ids, input_mask, rng, settings, vocabulary, max_predictions, sequence_ids)

    monkeypatch.setattr("bert_keras.data.tfrecord_batches.mask_tokens", mask)
    changed = Path(shutil.copytree(unmasked_examples.dir, tmp_path / "examples"))
    masking = {"when": "dynamic", "unit": "span", "rounding": "up", "max_predictions_per_seq": 3}
    change_spec(changed, masking=masking)
    job = pretrain_job(changed, tmp_path)
    pretrain(job)
    assert len(seen) >= 4
    assert set(seen) == {(MaskingSettings(**masking), 4, 3)}
    log = [json.loads(line) for line in (tmp_path / "model_run" / "log.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in log] == ["train", "train", "eval"]
    assert all(line["mlm_loss"] > 0 for line in log)  # there are predictions, held-out ones too
    served = tf.saved_model.load(job.output_dir).signatures
    assert "fill_mask" in served
    # The gate's floor is told beside what the model has.
    (record,) = tf.data.TFRecordDataset(shard_files(unmasked_examples.eval)).take(1)
    sums = served["evaluate"](examples=record[None])
    guessed = {name for name in sums if name.endswith("_guessed")}
    assert guessed == {"mlm_nll_guessed", "mlm_correct_guessed", "nsp_correct_guessed"}
    # Always "B follows A", and never: one of them is right about this pair.
    assert sorted(sums["nsp_correct_guessed"].numpy()[0]) == [0.0, 1.0]
    assert 0 < float(sums["mlm_nll_guessed"][0, 0]) < float(sums["mlm_weight"][0]) * 20


def unigram_perplexity(spec, train, held_out):
    (batch,) = eval_batches(shard_files(held_out), spec.layout, batch_size=1000)
    sums = guessed_sums(spec.objective, batch, unigram_model(spec, train))
    key = "lm" if spec.objective == "left_to_right" else "mlm"
    weights = next_tokens(batch)[1] if key == "lm" else batch["masked_lm_weights"]
    return math.exp(float(tf.reduce_sum(sums[f"{key}_nll_guessed"]) / tf.reduce_sum(weights)))


def test_the_unigram_model_is_the_same_for_examples_stored_unmasked(examples, unmasked_examples):
    perplexities = [
        unigram_perplexity(ExampleSpec.load(stored.dir), stored.train, stored.eval)
        for stored in (examples, unmasked_examples)
    ]
    assert perplexities[0] == perplexities[1] > 1


def written(folder, rows, spec):
    """A training split of unmasked rows."""
    folder.mkdir()
    with tf.io.TFRecordWriter(str(folder / "shard")) as writer:
        for ids in rows:
            example = tf.train.Example()
            padding = [0] * (spec.max_seq_length - len(ids))
            features = {"input_ids": ids + padding, "input_mask": [1] * len(ids) + padding}
            for name, values in {**features, "segment_ids": [0] * spec.max_seq_length}.items():
                example.features.feature[name].int64_list.value.extend(values)
            writer.write(example.SerializeToString())
    return str(folder)


def test_tokens_with_the_same_neighbours_have_the_same_vector(tmp_path):
    """6 and 7 stand between 2 and 3 or 4, 8 and 9 between 5 and 3; 1 never, 0 once and without neighbours."""
    spec = ExampleSpec(8, 0, 10, "", 1, 1, objective="left_to_right")
    rows = [[2, word, 3] for word in (6, 7)] * 4 + [[2, word, 4] for word in (6, 7)] * 2 + [[5, 8, 3], [5, 9, 3]] * 4
    folder = written(tmp_path / "train", [*rows, [0]], spec)
    log_p = unigram_model(spec, folder)
    vectors = neighbour_vectors(spec, folder, log_p, 5)
    assert vectors.shape == (10, 5)
    np.testing.assert_array_equal(vectors, neighbour_vectors(spec, folder, log_p, 5))
    assert not vectors[[0, 1]].any() and vectors[2:].any(1).all()
    lengths = np.linalg.norm(vectors[2:], axis=1)
    alike = vectors[2:] @ vectors[2:].T / np.outer(lengths, lengths)
    assert alike[4, 5] > 0.99 and alike[6, 7] > 0.99 and alike[4, 6] < 0.5
    sizes = np.square(vectors).sum(0)
    assert (np.diff(sizes) <= 1e-5).all() and sizes[-1] > 0.1  # the largest components come first
    np.testing.assert_allclose(neighbour_vectors(spec, folder, log_p, 40)[:, :5], vectors, atol=1e-5)


def test_the_unigram_model_of_next_tokens(tmp_path):
    """[CLS] a b [SEP] to train, and each of 10 tokens once more, are 14. Held out, a, c and [SEP] are predicted."""
    spec = ExampleSpec(6, 0, 10, "", 1, 1, objective="left_to_right")
    train, held_out = (
        written(tmp_path / split, [ids], spec) for split, ids in {"train": [2, 5, 6, 3], "eval": [2, 5, 7, 3]}.items()
    )
    perplexity = unigram_perplexity(spec, train, held_out)
    assert perplexity == pytest.approx((14 / 2 * 14 / 1 * 14 / 2) ** (1 / 3))


def test_before_the_first_step_the_initial_model_is_its_source(examples, trained_folder, tmp_path):
    with without_graph() as exported:
        weights = export_initial_model(pretrain_job(examples.dir, tmp_path), trained_folder)
    assert weights.untrained == () and "next_sentence" in exported[0]
    assert_equal(read_any(tmp_path / "model").model, read_any(trained_folder).model)


def test_training_may_begin_with_the_unigram_model(examples, tmp_path, monkeypatch):
    """Weights of nearly 0 leave the output bias: masked tokens are answered by their frequencies."""
    monkeypatch.setattr("bert_keras.models.head_start.SPREAD", 1e-6)
    monkeypatch.setattr("bert_keras.saved_model.pretrained.export_saved_model", not_exported)
    model = dataclasses.replace(TINY, initializer_range=1e-6)
    settings = PretrainingSettings(head_start=True)
    pretrain(pretrain_job(examples.dir, tmp_path, model=model, training=STANDING, pretraining=settings))
    batch = next(iter(ExampleSet.load(examples.dir).eval_batches(4)))
    log_p = unigram_model(ExampleSpec.load(examples.dir), examples.train)
    nll = guessed_sums("mlm_nsp", batch, log_p)["mlm_nll_guessed"].numpy().sum()
    (held_out,) = [json.loads(line) for line in (tmp_path / "model_run/log.jsonl").open() if '"eval"' in line]
    assert held_out["mlm_loss"] == pytest.approx(nll / batch["masked_lm_weights"].sum(), rel=1e-4)


@pytest.mark.slow
def test_training_begins_with_the_initial_model(examples, trained_folder, tmp_path):
    """Whose seed is another: a drawn model differs."""
    job = pretrain_job(examples.dir, tmp_path, training=STANDING)
    export_initial_model(dataclasses.replace(job, output_dir=str(tmp_path / "initial")), trained_folder)
    pretrain(dataclasses.replace(job, init=str(tmp_path / "initial")))
    before, after = (read_any(folder).model.get_weights() for folder in (trained_folder, job.output_dir))
    for mine, wanted in zip(after, before, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=1e-6)


def test_an_initial_model_of_another_size_is_refused(examples, trained_folder, tmp_path):
    wide = dataclasses.replace(TINY, hidden_size=32)
    with pytest.raises(InputError, match=r"has hidden_size 16, the model to train has model\.hidden_size=32"):
        export_initial_model(pretrain_job(examples.dir, tmp_path, model=wide), trained_folder)
    assert not (tmp_path / "model").exists()
