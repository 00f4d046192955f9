"""Shards of examples from shards of documents: content, counts, determinism, failures."""

import dataclasses
import hashlib
import json
import pickle
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.data.example_format import ExampleSpec, Shard
from bert_keras.data.masking import MaskingSettings
from bert_keras.data.tfrecord import bytes_example, frame
from bert_keras.tokenizers.wordpiece import BertTokenizer
from components.io.shards import read_documents
from components.pretrain_example_gen import transforms
from components.pretrain_example_gen.instances import make_examples
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.transforms import COUNTS, MakeExamplesShard, examples_path, make_examples_shards
from tests.support.examples.shard_files import (
    SETTINGS,
    TOKENIZER,
    made_of,
    make,
    make_documents,
    parse,
    read_records,
    write_documents,
)

SPANS = MaskingSettings(max_predictions_per_seq=5, unit="span")
DOCUMENTS = {"source_rates": {"law": 1.5, "web": 1.0}, "eval_fraction": 0.1, "read": {}}
DYNAMIC = MaskingSettings(max_predictions_per_seq=5, when="dynamic")


def test_counts_are_those_of_the_shard(shard, documents, output_dir):
    counts = make(shard, output_dir)
    examples = parse(output_dir)
    weights = examples["masked_lm_weights"] > 0
    shown = np.take_along_axis(examples["input_ids"], examples["masked_lm_positions"], 1)[weights]
    labels = examples["masked_lm_ids"][weights]
    assert list(counts) == list(COUNTS)
    assert counts["documents"] == 40
    assert counts["segments"] == sum(map(len, documents))
    assert counts["tokens"] == sum(len(s.split()) for document in documents for s in document)
    assert counts["words"] == counts["tokens"]
    assert counts["unknown_tokens"] == 0
    assert 0 < counts["truncated"] <= (examples["input_mask"].sum(1) == 32).sum()
    assert counts["masked"] == weights.sum()
    assert counts["masked_as_mask"] == (shown == TOKENIZER.mask_id).sum()
    assert counts["masked_as_same"] == (shown == labels).sum()
    assert counts["masked_as_random"] == ((shown != TOKENIZER.mask_id) & (shown != labels)).sum()


def test_unknown_tokens_and_empty_segments_are_counted(tmp_path, output_dir):
    path = write_documents(tmp_path / "documents-00000-of-00001.tfrecord", [["w1 ? w2", "\u200b"], ["\u200b"]])
    counts = make(path, output_dir)
    assert [counts[name] for name in ("documents", "segments", "tokens", "unknown_tokens")] == [1, 1, 3, 1]


def test_eval_has_one_pass_with_its_own_randomness(shard, output_dir):
    counts = {}
    for split, dupe_factor in (("train", 1), ("eval", 1), ("eval", 7)):
        (output_dir / f"{split}{dupe_factor}").mkdir()
        settings = ExampleSettings(32, dupe_factor, masking=SETTINGS.masking)
        counts[split, dupe_factor] = make(shard, output_dir / f"{split}{dupe_factor}", split, settings)
    assert counts["eval", 1] == counts["eval", 7]
    digests = {folder.name: [digest(path) for path in folder.iterdir()] for folder in output_dir.iterdir()}
    assert len(digests["eval7"]) == 1
    assert digests["eval1"] == digests["eval7"] != digests["train1"]


def digest(*paths):
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


@pytest.mark.parametrize("documents", [[], [["\u200b"]]])
def test_a_shard_without_text_makes_an_empty_shard(shard, output_dir):
    assert make(shard, output_dir) == dict.fromkeys(COUNTS, 0)
    assert [read_records(path) for path in made_of(output_dir)] == [[], []]


@pytest.mark.parametrize(
    ("changes", "sha256"),
    [
        ({}, "0588171d33e46fb3"),
        ({"objective": "single_sequence", "packing": True, "masking": SPANS}, "13a3d6ede2bd8ed3"),
        ({"nsp": "balanced", "masking": DYNAMIC}, "60f6fc156e6709e6"),
    ],
)
def test_the_same_inputs_give_the_same_bytes_on_every_python(shard, output_dir, monkeypatch, changes, sha256):
    """On any machine and NumPy, in any process, and where workers have no TensorFlow.

    A change of these bytes is a change for all users.
    """
    for name in ("tensorflow", "tfx", "tfx_bsl", "ml_metadata", "tensorflow_data_validation"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    make(shard, output_dir, settings=dataclasses.replace(SETTINGS, **changes))
    assert digest(*made_of(output_dir))[:16] == sha256


def test_shards_have_separate_random_streams(tmp_path, documents, output_dir):
    for name in ("documents-00000-of-00002.tfrecord", "documents-00001-of-00002.tfrecord"):
        make(write_documents(tmp_path / name, documents), output_dir)
    assert len({digest(path) for path in output_dir.iterdir()}) == 4


def test_a_failure_while_writing_leaves_no_file(shard, output_dir, monkeypatch):
    def fail_late(*arguments):
        yield next(make_examples(*arguments))
        raise RuntimeError("disk full")

    monkeypatch.setattr(transforms, "make_examples", fail_late)
    with pytest.raises(RuntimeError, match="disk full"):
        make(shard, output_dir)
    assert list(output_dir.iterdir()) == []


def test_a_pickled_do_fn_makes_the_shards_of_the_function(shard, tmp_path):
    (expected_dir := tmp_path / "expected" / "out").mkdir(parents=True)
    (output_dir := tmp_path / "out").mkdir()
    do_fn = MakeExamplesShard(TOKENIZER, SETTINGS, "train", str(output_dir))
    assert not any(isinstance(value, BertTokenizer) for value in vars(do_fn).values())
    do_fn = pickle.loads(pickle.dumps(do_fn))
    do_fn.setup()
    expected = make_examples_shards(shard, TOKENIZER, SETTINGS, "train", str(expected_dir))
    assert list(do_fn.process(shard)) == [("train", *expected)]
    assert len(made_of(output_dir)) == SETTINGS.dupe_factor
    assert [digest(path) for path in made_of(output_dir)] == [digest(path) for path in made_of(expected_dir)]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"\xff\xff\xff", "not a document"),
        (bytes_example({}), ".*no feature 'segments'"),
        (bytes_example({"segments": [b"\xe9"]}), ".*utf-8"),
    ],
)
def test_malformed_records_are_reported(tmp_path, record, message):
    path = tmp_path / "documents-00000-of-00001.tfrecord"
    path.write_bytes(frame(bytes_example({"segments": [b"w1"]})) + frame(record))
    with pytest.raises(ValueError, match=f"{path}, record 1: {message}"):
        list(read_documents(str(path)))


def test_damaged_and_missing_files_are_reported(shard):
    with open(shard, "r+b") as file:
        file.seek(-7, 2)
        file.write(b"x")
    with pytest.raises(ValueError, match=f"{shard}, record 39"):
        list(read_documents(shard))
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        list(read_documents("/no-such-file"))


def test_examples_of_a_source_are_named_and_counted_by_it(tmp_path, output_dir):
    rng = np.random.default_rng(1)
    paths = [tmp_path / f"documents-00000-of-00001-{name}.tfrecord" for name in ("law", "web")]
    shards = [write_documents(path, make_documents(count, rng)) for path, count in zip(paths, (10, 20), strict=True)]
    made = [
        (split, *make_examples_shards(shard, TOKENIZER, SETTINGS, split, f"{output_dir}/Split-{split}"))
        for shard in shards
        for split in ("train", "eval")
    ]
    facts = {"vocabulary_sha256": "0", "vocab_size": 9, "unicode_version": "15"}
    transforms.write_example_spec(str(output_dir), SETTINGS, made, facts, documents=DOCUMENTS)
    loaded = ExampleSpec.load(str(output_dir))
    assert (loaded.source_rates, loaded.eval_fraction) == (DOCUMENTS["source_rates"], DOCUMENTS["eval_fraction"])
    for split, expected in (("train", []), ("eval", [b"law"])):
        record = read_records(*(output_dir / f"Split-{split}").glob("examples-00000-of-*-law.tfrecord"))[0]
        feature = tf.train.Example.FromString(record).features.feature
        assert list(feature["source"].bytes_list.value) == expected
    spec, stored = (
        json.loads((output_dir / name).read_text()) for name in ("example_spec.json", "example_shards.json")
    )
    assert {(shard["path"].rpartition("-")[2], shard["source"]) for shard in stored} == {
        (f"{name}.tfrecord", name) for name in ("law", "web")
    }
    assert [spec["sources"][name]["train"]["documents"] for name in ("law", "web")] == [10, 20]
    for split, counts in spec["counts"].items():
        assert counts == transforms.sum_counts(of_source[split] for of_source in spec["sources"].values())
    # Without names nothing of it is stored.
    plain = [("train", counts, [shard._replace(source="") for shard in of]) for _, counts, of in made]
    transforms.write_example_spec(str(output_dir), SETTINGS, plain, facts)
    spec, stored = (
        json.loads((output_dir / name).read_text()) for name in ("example_spec.json", "example_shards.json")
    )
    assert "sources" not in spec and "source_rates" not in spec and not any("source" in shard for shard in stored)


def test_documents_alone_in_their_shard_are_reported(tmp_path, output_dir, capsys):
    """All tries for a random next sentence find the same document."""

    def report(*law, objective="mlm_nsp"):
        settings = dataclasses.replace(SETTINGS, objective=objective)
        sizes = [("law", count) for count in law] + [("web", 20), ("web", 1)]
        made = [("train", {"documents": count}, [Shard("", 0, 1, 1, "", name)]) for name, count in sizes]
        facts = {"vocabulary_sha256": "0", "vocab_size": 9, "unicode_version": "15"}
        transforms.write_example_spec(str(output_dir), settings, made, facts)
        return capsys.readouterr().err

    assert report(1, 4, 1) == (
        "bert-tfx: source law: 2 of 6 documents are alone in their shard, where no other document has a random next "
        "sentence for them: raise corpus.bucket_bytes\n"
    )
    # Of 21 documents, one may be; of one shard, nothing can be said of buckets.
    for quiet in (report(2, 4), report(1), report(1, 1, objective="segment_pair")):
        assert quiet == ""


def test_names_of_example_shards():
    documents = "gs://b/Split-train/documents-00003-of-00010.tfrecord"
    paths = [examples_path(documents, "gs://b/out", number, 2) for number in range(2)]
    assert paths == [f"gs://b/out/examples-000{index}-of-00020.tfrecord" for index in ("03", "13")]
    with pytest.raises(ValueError, match=r"/a/part-0.tfrecord: a documents shard is called documents-NUMBER-of"):
        examples_path("/a/part-0.tfrecord", "/out", 0, 1)
