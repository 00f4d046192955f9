"""Shards as read for training: features of every layout, counts, and the spec."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.data.example_format import ExampleSpec
from bert_keras.data.masking import MaskingSettings
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.transforms import COUNTS, write_example_spec
from tests.support.examples.shard_files import SETTINGS, made_of, make, parse, read_records, write_documents


@pytest.mark.parametrize(
    "objective", ["mlm_nsp", "mlm_sop", "segment_pair", "single_sequence", "doc_sentences", "left_to_right"]
)
@pytest.mark.parametrize(
    ("packing", "when", "split"),
    [
        (False, "static", "train"),
        (True, "static", "train"),
        (False, "dynamic", "train"),  # no masks
        (True, "dynamic", "eval"),
    ],
)
def test_every_layout_is_read_back(shard, output_dir, objective, packing, when, split):
    if objective == "left_to_right":
        when = "static"
    masking = MaskingSettings(max_predictions_per_seq=5, when=when)
    settings = ExampleSettings(32, 2, objective=objective, packing=packing, masking=masking)
    counts = make(shard, output_dir, split, settings)
    examples = parse(output_dir, settings.layout, masked=when == "static" or split == "eval")
    assert counts["instances"] == len(examples["input_ids"])
    assert counts["real_tokens"] == examples["input_mask"].sum()
    assert counts["slots"] == examples["input_mask"].size
    sequences = examples["sequence_ids"].max(1).sum() if packing else len(examples["input_ids"])
    assert counts["sequences"] == sequences
    assert counts["unpacked_slots"] == sequences * 32
    # Held out, the sequences of a document are packed together, and some have but one.
    assert counts["slots"] < counts["unpacked_slots"] if packing and split == "train" else counts["slots"] > 0
    assert counts["random_next"] == examples.get("next_sentence_labels", np.zeros(1)).sum()
    assert counts["masked"] == examples.get("masked_lm_weights", np.zeros(1)).sum()
    assert (counts["random_next"] > 0) == (objective in ("mlm_nsp", "mlm_sop"))
    assert (counts["masked"] > 0) == (objective != "left_to_right" and (when == "static" or split == "eval"))


def test_examples_are_read_with_the_originals_feature_spec(shard, output_dir):
    """google-research/bert, run_pretraining.py, input_fn_builder: names, lengths, types; label 1 is random."""
    counts = make(shard, output_dir)
    names = {
        "input_ids": tf.io.FixedLenFeature([32], tf.int64),
        "input_mask": tf.io.FixedLenFeature([32], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([32], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([5], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([5], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([5], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }
    records = read_records(*made_of(output_dir))
    parsed = tf.io.parse_example(records, names)
    assert len(parsed["input_ids"]) == counts["instances"] > 0
    assert set(tf.train.Example.FromString(records[0]).features.feature) == set(names)


def test_duplicates_are_counted_within_a_pass(tmp_path, output_dir):
    """Four documents, three of them equal, in two passes."""
    documents = [["w1 w2"], ["w3 w4"], ["w1 w2"], ["w1 w2"]]
    path = write_documents(tmp_path / "documents-00000-of-00001.tfrecord", documents)
    settings = ExampleSettings(32, 2, objective="doc_sentences", masking=SETTINGS.masking)
    counts = make(path, output_dir, settings=settings)
    assert (counts["sequences"], counts["duplicate_instances"]) == (8, 4)


def test_documents_without_pairs_are_counted(tmp_path, output_dir):
    settings = ExampleSettings(32, 2, nsp="balanced", masking=SETTINGS.masking)
    path = write_documents(tmp_path / "documents-00000-of-00001.tfrecord", [["w1 w2"]])
    counts = make(path, output_dir, settings=settings)
    names = ("documents", "single_segment_documents", "documents_without_pair", "instances")
    assert [counts[name] for name in names] == [1, 1, 1, 0]
    path = write_documents(tmp_path / "documents-00000-of-00001.tfrecord", [["w1 w2"], ["w3"], ["w4", "w5"]])
    counts = make(path, output_dir, settings=settings)
    assert [counts[name] for name in names] == [3, 2, 0, 6]


def test_cut_sentences_are_counted_once(tmp_path, output_dir):
    long = " ".join(f"w{i}" for i in range(31))
    path = write_documents(tmp_path / "documents-00000-of-00001.tfrecord", [[long, "w1"], [long + " w5 w6"] * 2])
    for objective, cut in (("single_sequence", 3), ("full_sentences", 3), ("mlm_nsp", 0)):
        settings = ExampleSettings(32, 4, objective=objective, masking=SETTINGS.masking)
        counts = make(path, output_dir, settings=settings)
        assert (counts["cut_segments"], counts["truncated"] > 0) == (cut, objective == "mlm_nsp")


@pytest.mark.parametrize(("packing", "predictions", "sequences"), [(False, 5, 1), (True, 8, 3)])
def test_example_spec_is_what_training_reads(tmp_path, packing, predictions, sequences):
    """Packed: 15 % of 32 tokens, rounded up, and one for each of 3 sequences."""
    made = [(split, {"instances": n}, []) for split, n in (("train", 30), ("train", 40), ("eval", 3))]
    counts = {split: {**dict.fromkeys(COUNTS, 0), "instances": n} for split, n in (("train", 70), ("eval", 3))}
    settings = dataclasses.replace(SETTINGS, packing=packing)
    vocabulary = {"vocabulary_sha256": "ab", "vocab_size": 3005, "unicode_version": "14.0.0"}
    write_example_spec(str(tmp_path), settings, made, vocabulary)
    spec = ExampleSpec.load(str(tmp_path))
    assert spec == ExampleSpec(
        max_seq_length=32,
        max_predictions_per_seq=predictions,
        vocab_size=3005,
        vocabulary_sha256="ab",
        train_examples=70,
        eval_examples=3,
        objective="mlm_nsp",
        masking=SETTINGS.masking,
        max_sequences=sequences,
    )
    assert spec.layout == settings.layout
    written = json.loads((tmp_path / "example_spec.json").read_text())
    assert written.pop("package_version")
    assert written == {
        "max_seq_length": 32,
        "max_predictions_per_seq": predictions,
        "dupe_factor": 2,
        "short_seq_prob": 0.2,
        "seed": 12345,
        "objective": "mlm_nsp",
        "cut_sentences": False,
        "nsp": "reference",
        "packing": packing,
        "max_sequences_per_pack": 3,
        "masking": dataclasses.asdict(SETTINGS.masking),
        "vocab_size": 3005,
        "vocabulary_sha256": "ab",
        "unicode_version": "14.0.0",
        "counts": counts,
    }
