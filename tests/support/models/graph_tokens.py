"""Tokenizers in a graph beside the offline ones, on many texts in one call."""

import random

import numpy as np
import tensorflow as tf


def random_texts(alphabet, count, seed=0):
    """Texts of up to 12 characters: half of them of `alphabet` alone, the others with any characters of Unicode."""
    rng = random.Random(seed)

    def any_character():
        point = rng.choice((rng.randrange(0x3000), rng.randrange(0x110000 - 0x800)))
        return chr(point + 0x800 * (point >= 0xD800))

    def character(share):
        return rng.choice(alphabet) if rng.random() < share else any_character()

    return ["".join(character(1 - number % 2 / 2) for _ in range(rng.randrange(13))) for number in range(count)]


def compiled(function):
    return tf.function(function, input_signature=[tf.TensorSpec([None], tf.string)])


def utf8(texts):
    return tf.constant([text.encode() for text in texts], tf.string)


def assert_ids(found, ids, row_splits, texts):
    """A ragged tensor of ids is that of the offline tokenizer; the first other text is named."""
    assert found.dtype == tf.int32
    np.testing.assert_array_equal(found.row_splits, row_splits)
    expected = [row.tolist() for row in np.split(ids, row_splits[1:])[:-1]]
    for text, ours, theirs in zip(texts, found.to_list(), expected, strict=True):
        assert ours == theirs, ascii(text)


def assert_tokens(found, expected, texts):
    """Ids and offsets are those of the offline tokenizer; offsets in bytes are those of the same characters."""
    assert_ids(found.ids, expected.ids, expected.row_splits, texts)
    np.testing.assert_array_equal(found.starts, expected.starts)
    np.testing.assert_array_equal(found.ends, expected.ends)
    rows = found.ids.value_rowids().numpy().tolist()
    for row, start, end, first, last in zip(rows, *(array.numpy().tolist() for array in found[1:]), strict=True):
        assert texts[row].encode()[first:last] == texts[row][start:end].encode(), ascii(texts[row])
