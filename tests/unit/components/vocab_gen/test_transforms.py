"""Document shards to `vocab.txt` and `vocab_spec.json`, in Beam."""

import hashlib
import json

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from bert_keras.errors import InputError
from bert_keras.unicode_tables import UNICODE_VERSION
from components.shards import write_shard
from components.vocab_gen.settings import VocabularySettings
from components.vocab_gen.transforms import CountWords, MakeVocabulary

SETTINGS = VocabularySettings(min_word_count=2)
# Two shards; "the" and "caf" + "e" + accent are in both.
SHARDS = [
    [["The café, the end.", "Unique"], ["THE cat sat"]],
    [["the Cat sat; cafe"], ["No 漢字 漢"]],
]
# The five special ones; of the words seen twice (the 4, café 2, cat 2, sat 2, 漢 2): 8 characters, 5 inside a word.
SMALLEST = 5 + 8 + 5


def write_documents(path, documents):
    def records():
        for segments in documents:
            example = tf.train.Example()
            example.features.feature["segments"].bytes_list.value.extend(s.encode() for s in segments)
            yield example.SerializeToString()

    write_shard(str(path), records())
    return str(path)


@pytest.fixture
def shards(tmp_path):
    return [write_documents(tmp_path / f"documents-{i}", documents) for i, documents in enumerate(SHARDS)]


def make(shards, output, vocab_size=SMALLEST + 2, settings=SETTINGS, args=()):
    output.mkdir()
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", *args])) as pipeline:
        pipeline | beam.Create(shards) | MakeVocabulary(str(output), vocab_size, settings)
    return {path.name: path.read_bytes() for path in output.iterdir()}


def test_words_are_counted_as_the_tokenizer_sees_them(shards):
    assert dict(CountWords(lower_case=True).process(shards[0])) == {
        "the": 3,
        "cafe": 1,
        ",": 1,
        "end": 1,
        ".": 1,
        "unique": 1,
        "cat": 1,
        "sat": 1,
    }
    assert dict(CountWords(lower_case=False).process(shards[1])) == {
        "the": 1,
        "Cat": 1,
        "sat": 1,
        ";": 1,
        "cafe": 1,
        "No": 1,
        "漢": 2,
        "字": 1,
    }


def test_the_two_files(tmp_path, shards):
    files = make(shards, tmp_path / "out")
    assert sorted(files) == ["vocab.txt", "vocab_spec.json"]
    tokens = files["vocab.txt"].decode().split("\n")
    assert tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] and tokens[-1] == ""
    assert tokens[5:13] == ["a", "c", "e", "f", "h", "s", "t", "漢"]
    assert tokens[13:18] == ["##a", "##e", "##f", "##h", "##t"]
    assert json.loads(files["vocab_spec.json"]) == {
        "algorithm": "wordpiece",
        "lower_case": True,
        "max_alphabet": 1000,
        "min_word_count": 2,
        "normalization": "NFD, marks stripped",
        "unicode_version": UNICODE_VERSION,
        "vocab_size": SMALLEST + 2,
        "vocabulary_sha256": hashlib.sha256(files["vocab.txt"]).hexdigest(),
        "words": 12,
        "distinct_words": 5,
    }


def test_the_same_bytes_for_any_workers_and_order(tmp_path, shards):
    expected = make(shards, tmp_path / "one")
    two_workers = ["--direct_num_workers=2", "--direct_running_mode=multi_threading"]
    assert make(shards[::-1], tmp_path / "two", args=two_workers) == expected


@pytest.mark.parametrize("vocab_size", [500, 8])
def test_a_size_that_the_corpus_does_not_fit_stops_the_run(tmp_path, shards, vocab_size):
    with pytest.raises(InputError, match=rf"{vocab_size} were asked for: .*--set model.vocab_size=\d+") as caught:
        make(shards, tmp_path / "out", vocab_size)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out").iterdir())


def test_a_corpus_without_words_stops_the_run(tmp_path):
    with pytest.raises(InputError, match="0 distinct words"):
        make([write_documents(tmp_path / "empty", [])], tmp_path / "out")
