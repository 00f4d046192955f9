"""Tagging in the served graph: the words of raw text, their tags and offsets.

Shapes: B rows, N code points of all texts, W words of all texts (in the outputs: of the longest row), L labels.
"""

from collections.abc import Sequence

import tensorflow as tf

from bert_keras.saved_model.task_answers import Outputs
from bert_keras.saved_model.text_inputs import TextInputs
from bert_keras.tasks.answers import OUTSIDE
from bert_keras.tokenizers.wordpiece_graph import is_punctuation, is_space


class TagAnswers:
    """text string[B] -> words, tags string[B, W], scores float[B, W], starts, ends int64[B, W].

    Words are separated by the original's white space; for a row of a task they are its words. A word has the tag of its
    first token, as in training; a word without tokens (normalized to nothing, or beyond T) has "O", with score 0, and
    is never dropped. Rows with fewer words are padded with "" and 0.

    `starts` and `ends` (exclusive) count the code points of the text, without bytes that are not UTF-8. They exclude
    punctuation at the edges of a word, as in prose ("Obama," -> "Obama"), unless the word is punctuation only.
    """

    def __init__(self, outputs: Outputs, inputs: TextInputs, labels: Sequence[str]):
        self._outputs, self._inputs, self._labels = outputs, inputs, tuple(labels)

    def __call__(self, text):
        with tf.device("CPU:0"):
            # No word crosses the line end that is added to each text.
            code_points = tf.strings.unicode_decode(tf.strings.join([text, "\n"]), "UTF-8", errors="ignore")
            space = is_space(code_points.values)
            after = tf.concat([[True], space[:-1]], axis=0)
            before = tf.concat([space[1:], [True]], axis=0)
            starts, ends = tf.where(~space & after)[:, 0], tf.where(~space & before)[:, 0] + 1  # [W], `ends` exclusive
            word_splits = tf.searchsorted(starts, code_points.row_splits, out_type=tf.int64)  # [B + 1]
            words = tf.gather(code_points.values, tf.ragged.range(starts, ends))  # [W, (code points)]
            word_ids = self._inputs.tokenize.encode_words(words)  # [W, (tokens)]
            ids = _rows(word_ids.values, tf.gather(word_ids.row_splits, word_splits))  # [B, (tokens)]
            places = tf.gather(tf.pad(self._inputs.places(ids).values, [[0, 1]]), word_ids.row_starts())
            place = tf.where(word_ids.row_lengths() > 0, places, 0)
            row = _rows(place, word_splits).value_rowids()
            packed = self._inputs.pack(ids)
        scores = tf.nn.softmax(tf.cast(self._outputs(packed), tf.float32))  # [B, T', L]
        with tf.device("CPU:0"):
            odds = tf.gather_nd(scores, tf.stack([row, place], axis=1))  # [W, L]
            tags = tf.gather(self._labels, tf.argmax(odds, axis=-1))
            by_row = {
                "words": tf.strings.unicode_encode(words, "UTF-8"),
                "tags": tf.where(place > 0, tags, OUTSIDE),
                "scores": tf.where(place > 0, tf.reduce_max(odds, axis=-1), 0.0),
            }
            begin = tf.gather(code_points.row_starts(), row)
            within = self._without_punctuation(code_points.values, starts, ends)
            by_row |= {name: edge - begin for name, edge in zip(("starts", "ends"), within, strict=True)}
            return {name: _rows(values, word_splits).to_tensor() for name, values in by_row.items()}

    def written(self, outputs):
        return {"answer": tf.strings.strip(tf.strings.reduce_join(outputs["tags"], axis=1, separator=" "))}

    def _without_punctuation(self, code_points, starts, ends):
        """`starts` and `ends` [W] without the punctuation at the edges; words of punctuation only are unchanged."""
        kept = tf.where(~is_punctuation(code_points))[:, 0]
        # Sentinels before the first and after the last one.
        kept = tf.concat([[-1], kept, [tf.size(code_points, tf.int64)]], axis=0)
        first = tf.gather(kept, tf.searchsorted(kept, starts))
        last = tf.gather(kept, tf.searchsorted(kept, ends) - 1)
        alone = first >= ends
        return tf.where(alone, starts, first), tf.where(alone, ends, last + 1)


def _rows(values: tf.Tensor, splits: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)
