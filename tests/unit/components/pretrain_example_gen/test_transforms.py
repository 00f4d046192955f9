"""Shards of documents to shards of examples: content, counts, determinism, failure."""

import dataclasses
import hashlib
import json
import pickle
import subprocess
import sys

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from bert_keras.features import ExampleSpec, feature_spec
from bert_keras.masking import MaskingSettings
from bert_keras.tokenizer import SPECIAL_TOKENS, BertTokenizer
from components.pretrain_example_gen import transforms
from components.pretrain_example_gen.instances import make_examples
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.transforms import (
    COUNTS,
    MakeExamplesShard,
    MakePretrainExamples,
    examples_path,
    make_examples_shard,
    sum_counts,
    write_example_spec,
)
from components.shards import read_documents

# A word for each token: "w17" has id 22. "?" is unknown.
VOCABULARY = (*SPECIAL_TOKENS, *(f"w{i}" for i in range(3000)))
TOKENIZER = BertTokenizer(VOCABULARY, lower_case=True)
SETTINGS = ExampleSettings(
    max_seq_length=32, dupe_factor=2, short_seq_prob=0.2, masking=MaskingSettings(max_predictions_per_seq=5)
)


def make_documents(count, rng):
    """Documents of sentences of distinct words, so that a run of tokens tells where it is from."""
    words = iter(rng.permutation(3000).tolist())
    return [
        [" ".join(f"w{next(words)}" for _ in range(rng.integers(1, 12))) for _ in range(rng.integers(1, 9))]
        for _ in range(count)
    ]


def write_documents(path, documents):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for document in documents:
            example = tf.train.Example()
            example.features.feature["segments"].bytes_list.value.extend(s.encode() for s in document)
            writer.write(example.SerializeToString())
    return str(path)


@pytest.fixture
def documents():
    return make_documents(40, np.random.default_rng(0))


@pytest.fixture
def shard(tmp_path, documents):
    return write_documents(tmp_path / "documents-00003-of-00010.tfrecord", documents)


@pytest.fixture
def output_dir(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    return path


def make(shard, output_dir, split="train", settings=SETTINGS):
    return make_examples_shard(shard, TOKENIZER, settings, split, str(output_dir))


def read_records(path):
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


def parse(path, layout=SETTINGS.layout, *, masked=True):
    features = tf.io.parse_example(read_records(path), feature_spec(layout, masked=masked))
    return {name: values.numpy() for name, values in features.items()}


def restore(examples):
    """input_ids before masking."""
    input_ids = examples["input_ids"].copy()
    rows, slots = np.nonzero(examples["masked_lm_weights"])
    input_ids[rows, examples["masked_lm_positions"][rows, slots]] = examples["masked_lm_ids"][rows, slots]
    return input_ids


def test_examples_are_runs_of_the_documents(shard, documents, output_dir):
    make(shard, output_dir)
    examples = parse(output_dir / "examples-00003-of-00010.tfrecord")
    texts = [TOKENIZER.encode(document)[0].tolist() for document in documents]
    place = {token: (number, at) for number, text in enumerate(texts) for at, token in enumerate(text)}
    for number, input_ids in enumerate(restore(examples)):
        length = examples["input_mask"][number].sum()
        is_b = examples["segment_ids"][number] == 1
        a, b = input_ids[:length][~is_b[:length]].tolist(), input_ids[is_b].tolist()
        assert (a[0], a[-1], b[-1]) == (TOKENIZER.cls_id, TOKENIZER.sep_id, TOKENIZER.sep_id)
        for segment in (a[1:-1], b[:-1]):
            document, start = place[segment[0]]
            assert texts[document][start : start + len(segment)] == segment
        same_document = place[a[1]][0] == place[b[0]][0]
        assert same_document == (examples["next_sentence_labels"][number, 0] == 0)  # D1.13: 1 = random
        if same_document:
            assert place[b[0]][1] > place[a[-2]][1]
        assert (input_ids[length:] == TOKENIZER.pad_id).all()


def test_counts_are_those_of_the_shard(shard, documents, output_dir):
    counts = make(shard, output_dir)
    examples = parse(output_dir / "examples-00003-of-00010.tfrecord")
    weights = examples["masked_lm_weights"] > 0
    shown = np.take_along_axis(examples["input_ids"], examples["masked_lm_positions"], 1)[weights]
    labels = examples["masked_lm_ids"][weights]
    assert list(counts) == list(COUNTS)
    assert counts["documents"] == 40
    assert counts["segments"] == sum(map(len, documents))
    assert counts["tokens"] == sum(len(s.split()) for document in documents for s in document)
    assert counts["unknown_tokens"] == 0
    assert counts["instances"] == len(examples["input_ids"])
    assert counts["random_next"] == examples["next_sentence_labels"].sum()
    assert 0 < counts["truncated"] <= (examples["input_mask"].sum(1) == 32).sum()
    assert counts["real_tokens"] == examples["input_mask"].sum()
    assert counts["slots"] == examples["input_mask"].size
    assert counts["masked"] == weights.sum()
    assert counts["masked_as_mask"] == (shown == TOKENIZER.mask_id).sum()
    assert counts["masked_as_same"] == (shown == labels).sum()
    assert counts["masked_as_random"] == ((shown != TOKENIZER.mask_id) & (shown != labels)).sum()


def test_unknown_tokens_and_empty_segments_are_counted(tmp_path, output_dir):
    path = write_documents(tmp_path / "documents-00000-of-00001.tfrecord", [["w1 ? w2", "\u200b"], ["\u200b"]])
    counts = make(path, output_dir)
    assert [counts[name] for name in ("documents", "segments", "tokens", "unknown_tokens")] == [1, 1, 3, 1]


def test_eval_makes_one_pass_with_randomness_of_its_own(shard, output_dir):
    counts = {}
    for split, dupe_factor in (("train", 1), ("eval", 1), ("eval", 7)):
        (output_dir / f"{split}{dupe_factor}").mkdir()
        settings = ExampleSettings(32, dupe_factor, masking=SETTINGS.masking)
        counts[split, dupe_factor] = make(shard, output_dir / f"{split}{dupe_factor}", split, settings)
    assert counts["eval", 1] == counts["eval", 7]
    digests = {path.parent.name: digest(path) for path in output_dir.glob("*/*")}
    assert digests["eval1"] == digests["eval7"] != digests["train1"]
    with pytest.raises(ValueError, match="'test'; it must be 'train' or 'eval'"):
        make(shard, output_dir, "test")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("documents", [[], [["\u200b"]]])
def test_a_shard_without_text_makes_an_empty_shard(shard, output_dir):
    assert make(shard, output_dir) == dict.fromkeys(COUNTS, 0)
    assert read_records(output_dir / "examples-00003-of-00010.tfrecord") == []


def test_shards_have_streams_of_their_own(tmp_path, documents, output_dir):
    for name in ("documents-00000-of-00002.tfrecord", "documents-00001-of-00002.tfrecord"):
        make(write_documents(tmp_path / name, documents), output_dir)
    assert len({digest(path) for path in output_dir.iterdir()}) == 2


def make_elsewhere(shard, output_dir, first="", hash_seed="0"):
    """Makes the shard in another process, after the statements `first`."""
    program = f"""
import pickle, sys
from components.pretrain_example_gen import transforms
from components.pretrain_example_gen.instances import make_examples
{first}
do_fn, shard = pickle.load(sys.stdin.buffer)
do_fn.setup()
list(do_fn.process(shard))
heavy = {{"tensorflow", "tfx", "tfx_bsl", "ml_metadata", "tensorflow_data_validation"}}
print(sorted(heavy & set(sys.modules)))
"""
    do_fn = MakeExamplesShard(TOKENIZER, SETTINGS, "train", str(output_dir))
    return subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((do_fn, shard)),
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
    )


def test_bytes_are_the_same_in_every_process_without_tensorflow(shard, output_dir):
    make(shard, output_dir)
    (path,) = output_dir.iterdir()
    expected = digest(path)
    for hash_seed in ("1", "2"):
        path.unlink()
        run = make_elsewhere(shard, output_dir, hash_seed=hash_seed)
        assert run.stdout.strip() == b"[]"
        assert digest(path) == expected


def test_a_killed_process_leaves_no_final_file(shard, output_dir):
    die = """
def die(examples):
    import os
    os._exit(9)
transforms.encode_records = die
"""
    assert make_elsewhere(shard, output_dir, first=die).returncode == 9
    assert list(output_dir.glob("examples-*")) == []


def test_a_failure_while_writing_leaves_no_file(shard, output_dir, monkeypatch):
    def fail_late(*arguments):
        yield next(make_examples(*arguments))
        raise RuntimeError("disk full")

    monkeypatch.setattr(transforms, "make_examples", fail_late)
    with pytest.raises(RuntimeError, match="disk full"):
        make(shard, output_dir)
    assert list(output_dir.iterdir()) == []


def test_do_fn_with_a_tokenizer_pickles_without_it():
    do_fn = MakeExamplesShard(TOKENIZER, SETTINGS, "train", "/out")
    do_fn.setup()
    assert do_fn._tokenizer.vocabulary == VOCABULARY
    do_fn = MakeExamplesShard(TOKENIZER, SETTINGS, "train", "/out")
    assert vars(pickle.loads(pickle.dumps(do_fn))) == vars(do_fn)
    assert not any(isinstance(value, BertTokenizer) for value in vars(do_fn).values())


@pytest.mark.parametrize("workers", [1, 3])
def test_pipeline_writes_the_same_bytes_for_any_number_of_workers(tmp_path, output_dir, workers):
    rng = np.random.default_rng(1)
    shards = [
        write_documents(tmp_path / f"documents-0000{i}-of-00004.tfrecord", make_documents(10, rng)) for i in range(4)
    ]
    expected_dir = tmp_path / "expected"
    expected_dir.mkdir()
    expected = sum_counts([make(shard, expected_dir) for shard in shards])
    options = PipelineOptions(runner="FnApiRunner", direct_num_workers=workers, direct_running_mode="multi_threading")
    with beam.Pipeline(options=options) as pipeline:
        counts = pipeline | beam.Create(shards) | MakePretrainExamples(TOKENIZER, SETTINGS, "train", str(output_dir))
        assert_that(counts, equal_to([expected]))
    assert {p.name: digest(p) for p in output_dir.iterdir()} == {p.name: digest(p) for p in expected_dir.iterdir()}
    assert len(list(output_dir.iterdir())) == 4


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"\xff\xff\xff", "record 1: not a document"),
        (tf.train.Example().SerializeToString(), "record 1: .*no feature 'segments'"),
        (
            tf.train.Example(
                features=tf.train.Features(
                    feature={"segments": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"\xe9"]))}
                )
            ).SerializeToString(),
            "record 1: .*utf-8",
        ),
    ],
)
def test_bad_records_are_named(tmp_path, record, message):
    path = str(tmp_path / "documents-00000-of-00001.tfrecord")
    good = tf.train.Example()
    good.features.feature["segments"].bytes_list.value.append(b"w1")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(good.SerializeToString())
        writer.write(record)
    with pytest.raises(ValueError, match=f"{path}, {message}"):
        list(read_documents(path))


def test_damaged_and_missing_files_are_named(shard):
    with open(shard, "r+b") as file:
        file.seek(-7, 2)
        file.write(b"x")
    with pytest.raises(ValueError, match=f"{shard}, record 39"):
        list(read_documents(shard))
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        list(read_documents("/no-such-file"))


def test_names():
    assert (
        examples_path("gs://b/Split-train/documents-00003-of-00010.tfrecord", "gs://b/out")
        == "gs://b/out/examples-00003-of-00010.tfrecord"
    )
    with pytest.raises(ValueError, match=r"/a/part-0.tfrecord: the name of a documents shard starts with"):
        examples_path("/a/part-0.tfrecord", "/out")


@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize("objective", ["mlm_nsp", "segment_pair", "doc_sentences", "left_to_right"])
@pytest.mark.parametrize(("packing", "when"), [(False, "static"), (True, "static"), (True, "dynamic")])
def test_every_layout_is_read_back(shard, output_dir, objective, packing, when, split):
    if objective == "left_to_right":
        when = "static"
    masking = MaskingSettings(max_predictions_per_seq=5, when=when)
    settings = ExampleSettings(32, 2, objective=objective, packing=packing, masking=masking)
    counts = make(shard, output_dir, split, settings)
    examples = parse(
        output_dir / "examples-00003-of-00010.tfrecord", settings.layout, masked=when == "static" or split == "eval"
    )
    assert counts["instances"] == len(examples["input_ids"])
    assert counts["real_tokens"] == examples["input_mask"].sum()
    assert counts["slots"] == examples["input_mask"].size
    sequences = examples["sequence_ids"].max(1).sum() if packing else len(examples["input_ids"])
    assert counts["sequences"] == sequences
    assert counts["unpacked_slots"] == sequences * 32
    assert (counts["slots"] < counts["unpacked_slots"]) == packing
    assert counts["random_next"] == examples.get("next_sentence_labels", np.zeros(1)).sum()
    assert counts["masked"] == examples.get("masked_lm_weights", np.zeros(1)).sum()
    assert (counts["random_next"] > 0) == (objective == "mlm_nsp")
    assert (counts["masked"] > 0) == (objective != "left_to_right" and (when == "static" or split == "eval"))


def test_d1_13_examples_are_read_with_the_original_s_feature_spec(shard, output_dir):
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
    records = read_records(output_dir / "examples-00003-of-00010.tfrecord")
    parsed = tf.io.parse_example(records, names)
    assert len(parsed["input_ids"]) == counts["instances"] > 0
    assert set(tf.train.Example.FromString(records[0]).features.feature) == set(names)


def test_duplicates_are_counted_within_a_pass(tmp_path, output_dir):
    """Four documents, of which three are the same, twice."""
    documents = [["w1 w2"], ["w3 w4"], ["w1 w2"], ["w1 w2"]]
    path = write_documents(tmp_path / "documents-00000-of-00001.tfrecord", documents)
    settings = ExampleSettings(32, 2, objective="doc_sentences", masking=SETTINGS.masking)
    counts = make(path, output_dir, settings=settings)
    assert (counts["sequences"], counts["duplicate_instances"]) == (8, 4)


def test_what_pairs_cannot_be_made_of_is_counted(tmp_path, output_dir):
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
    path = tmp_path / "example_spec.json"
    counts = {split: {**dict.fromkeys(COUNTS, 0), "instances": n} for split, n in (("train", 70), ("eval", 3))}
    settings = dataclasses.replace(SETTINGS, packing=packing)
    write_example_spec(
        str(path), settings, vocabulary_sha256="ab", vocab_size=3005, unicode_version="14.0.0", counts=counts
    )
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
    written = json.loads(path.read_text())
    assert written.pop("package_version")
    assert written == {
        "max_seq_length": 32,
        "max_predictions_per_seq": predictions,
        "dupe_factor": 2,
        "short_seq_prob": 0.2,
        "seed": 12345,
        "objective": "mlm_nsp",
        "nsp": "reference",
        "packing": packing,
        "max_sequences_per_pack": 3,
        "masking": dataclasses.asdict(SETTINGS.masking),
        "vocab_size": 3005,
        "vocabulary_sha256": "ab",
        "unicode_version": "14.0.0",
        "counts": counts,
    }
