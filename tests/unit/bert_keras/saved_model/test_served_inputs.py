"""The graph makes the same sequences from raw text as training reads."""

import csv
import dataclasses
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.saved_model.text_inputs import TextInputs
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer

TRUNCATIONS = ("head", "tail", "head_tail")
LETTERS = "abcdefghijklmnopqrstuvwxyzß漢é.,'"
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "the", "cat", *LETTERS, *("##" + letter for letter in LETTERS)], True)
TEXTS = [
    "",
    "the cat",
    "\x00\u200b",
    "Café 漢字, The CAT's",
    "the " * 9 + "cat",
    "a b c d e f g h",
    "abcdefghijklm nop",
]

needs_data = pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set")


def assert_same_inputs(tokenizer, settings, texts, pairs=None):
    task = dataclasses.replace(task_of("sst-2"), pair=pairs is not None)
    inputs = [{"text": text} for text in texts]
    if pairs is not None:
        inputs = [{"text": text, "text_pair": pair} for text, pair in zip(texts, pairs, strict=True)]
    rows = [TaskRow(str(i), of_row) for i, of_row in enumerate(inputs)]
    expected = task_type_of(task).features(rows, task, settings, tokenizer).arrays
    served = tf.function(TextInputs(tokenizer, settings.max_seq_length, settings.truncation), autograph=False)
    actual = served(*(tf.constant(column, tf.string) for column in (texts, pairs) if column is not None))
    assert set(actual) == set(expected) == {"input_ids", "input_mask", "segment_ids"}
    for name, array in actual.items():
        assert array.dtype == tf.int32
        np.testing.assert_array_equal(array, expected[name])
    return actual["input_ids"].numpy()


# Of 6, 7 and 9 places a quarter is the head's; the others cut at any length alike.
@pytest.mark.parametrize(
    ("truncation", "length"),
    [("head", 9), ("head", 64), ("tail", 8), ("head_tail", 8), ("head_tail", 9), ("head_tail", 11)],
)
def test_single_texts(truncation, length):
    assert_same_inputs(TOKENIZER, TaskSettings(max_seq_length=length, truncation=truncation), TEXTS)


@pytest.mark.parametrize("length", [8, 9, 64])
def test_pairs(length):
    first, second = zip(*[(a, b) for a in TEXTS for b in TEXTS], strict=True)
    assert_same_inputs(TOKENIZER, TaskSettings(max_seq_length=length), list(first), list(second))


@pytest.mark.parametrize(("first", "second"), [(["a"], ["b", "c"]), (["a", "b"], ["c"]), (["a"], [])])
def test_pairs_of_unequal_numbers_are_refused(first, second):
    served = tf.function(TextInputs(TOKENIZER, 9, "head"), autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many second texts are needed as texts"):
        served(tf.constant(first), tf.constant(second, tf.string))


@pytest.mark.parametrize(
    ("truncation", "kept"), [("head", "a b c d e f"), ("tail", "d e f g h i"), ("head_tail", "a b f g h i")]
)
def test_truncation_keeps_head_or_tail(truncation, kept):
    settings = TaskSettings(max_seq_length=8, truncation=truncation)
    (ids,) = assert_same_inputs(TOKENIZER, settings, ["a b c d e f g h i"])
    assert [TOKENIZER.vocabulary[i] for i in ids] == ["[CLS]", *kept.split(), "[SEP]"]


def test_head_tail_keeps_128_and_382_of_510():
    """arXiv 1905.05583, section 5.3.1."""
    pieces = tf.ragged.range([509, 511, 600])
    places = TextInputs(TOKENIZER, 512, "head_tail").places(pieces).numpy()
    np.testing.assert_array_equal(places[0], np.arange(1, 510))
    assert [np.flatnonzero(of_row == 0).tolist() for of_row in places[1:]] == [[128], list(range(128, 218))]
    assert places[2][127] == 128 and places[2][218] == 129 and places[2][-1] == 510


@pytest.fixture(scope="module")
def released():
    path = Path(os.environ["BERT_DATA_DIR"], "vocab", "bert-base-uncased-vocab.txt")
    return BertTokenizer.from_file(str(path), lower_case=True)


@needs_data
@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_reviews_and_190_languages(released, truncation):
    folder = Path(os.environ["BERT_DATA_DIR"])
    with (folder / "golden_tokenization" / "udhr_bert_reference.jsonl").open() as lines:
        texts = [json.loads(line)["text"] for line in lines]
    with tarfile.open(folder / "imdb" / "aclImdb_train_0_1500.tar.gz") as files:
        names = [name for name in files.getnames() if name.endswith(".txt") and "/pos/" in name][:200]
        texts += [files.extractfile(name).read().decode() for name in names]
    ids = assert_same_inputs(released, TaskSettings(max_seq_length=128, truncation=truncation), texts)
    assert len(names) == 200 and (ids[:, 127] == released.sep_id).sum() > 100  # most reviews are cut


@needs_data
@pytest.mark.parametrize("length", [32, 128])
def test_pairs_of_a_task(released, length):
    path = Path(os.environ["BERT_DATA_DIR"], "glue", "MRPC", "msr_paraphrase_train.txt")
    with path.open(encoding="utf-8-sig") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:1001]
    assert_same_inputs(released, TaskSettings(max_seq_length=length), [row[3] for row in rows], [r[4] for r in rows])
