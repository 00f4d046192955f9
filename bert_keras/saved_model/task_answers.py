"""Answers of task models in the served graph, one function per task type; spans have their own module.

Shapes: B rows, L labels, C choices, T' tokens of the longest sequence of the batch, N code points of all texts, W words
of all texts (in the outputs: of the longest row).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.saved_model.text_inputs import TextInputs, refuse, text_specs
from bert_keras.tasks.answers import OUTSIDE
from bert_keras.tasks.table import SEPARATOR, Task
from bert_keras.tokenizers.wordpiece_graph import is_punctuation, is_space

# The backbone's inputs -> the model's outputs.
Outputs = Callable[[Mapping[str, tf.Tensor]], Any]
Tensors = Mapping[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class ServedAnswers:
    """The answers of a task type.

    Attributes:
        specs: the inputs, with the names of a row's (`bert_keras.tasks.rows`).
        answer: from the inputs to the outputs of `serving_default` by name, per row.
        written: from these to the outputs of `evaluate`: `answer` string [B], as
            `bert_keras.tasks.answers.parse_answers` parses them.
    """

    specs: list[tf.TensorSpec]
    answer: Callable[..., dict[str, tf.Tensor]]
    written: Callable[[Tensors], dict[str, tf.Tensor]]


def label_answers(outputs: Outputs, inputs: TextInputs, task: Task) -> ServedAnswers:
    """text (and text_pair) string[B] -> label string[B]; labels string[B, L], scores float[B, L] (probabilities).

    Of several labels a text, each has a probability of its own, and `label` is the likeliest, for clients of one label;
    the answer of `evaluate` is those of at least 0.5.
    """
    several = task.kind == "multi_label"

    def answer(*texts):
        logits = tf.cast(outputs(inputs(*texts)), tf.float32)  # [B, L]
        names = tf.constant(task.labels)
        return {
            "label": tf.gather(names, tf.argmax(logits, axis=-1)),
            "labels": tf.broadcast_to(names, tf.shape(logits)),
            "scores": tf.sigmoid(logits) if several else tf.nn.softmax(logits),
        }

    def written(answers):
        if not several:
            return {"answer": answers["label"]}
        chosen = tf.ragged.boolean_mask(answers["labels"], answers["scores"] >= 0.5)
        return {"answer": tf.strings.reduce_join(chosen, axis=-1, separator=SEPARATOR)}

    return ServedAnswers(_texts(task.pair), answer, written)


def number_answers(outputs: Outputs, inputs: TextInputs, pair: bool) -> ServedAnswers:
    """text (and text_pair) string[B] -> score float[B], not clipped to the task's range."""

    def answer(*texts):
        return {"score": tf.cast(outputs(inputs(*texts)), tf.float32)}

    return ServedAnswers(_texts(pair), answer, lambda answers: {"answer": _number(answers["score"])})


def choice_answers(outputs: Outputs, inputs: TextInputs) -> ServedAnswers:
    """text string[B], choices string[B, C] -> choice int64[B], from 0; scores float[B, C] (probabilities)."""

    def answer(text, choices):
        shape = tf.shape(choices)
        none = tf.fill(shape[:1], shape[1] == 0)
        with tf.control_dependencies([refuse(none, "text {} has no choices: give at least one")]):
            text = tf.identity(text)
        first = tf.repeat(tf.range(shape[0]), shape[1])
        text_ids, choice_ids = inputs.tokenize(text), inputs.tokenize(tf.reshape(choices, [-1]))
        packed = inputs.pack(tf.gather(text_ids, first), choice_ids)  # [B C, T']
        by_row = {name: tf.reshape(array, [shape[0], shape[1], tf.shape(array)[1]]) for name, array in packed.items()}
        logits = tf.cast(outputs(by_row), tf.float32)  # [B, C]
        # Without rows there are no columns either, which tf.argmax refuses.
        padded = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
        return {"choice": tf.argmax(padded, axis=-1), "scores": tf.nn.softmax(logits)}

    specs = [*text_specs("text"), tf.TensorSpec([None, None], tf.string, name="choices")]
    return ServedAnswers(specs, answer, lambda answers: {"answer": tf.strings.as_string(answers["choice"])})


def tag_answers(outputs: Outputs, inputs: TextInputs, labels: Sequence[str]) -> ServedAnswers:
    """text string[B] -> words, tags string[B, W], scores float[B, W], starts, ends int64[B, W].

    Words are separated by the original's white space; for a row of a task they are its words. A word has the tag of its
    first token, as in training; a word without tokens (normalized to nothing, or beyond T) has "O", with score 0, and
    is never dropped. Rows with fewer words are padded with "" and 0.

    `starts` and `ends` (exclusive) count the code points of the text, without bytes that are not UTF-8. They exclude
    punctuation at the edges of a word, as in prose ("Obama," -> "Obama"), unless the word is punctuation only.
    """

    def answer(text):
        with tf.device("CPU:0"):
            # No word crosses the line end that is added to each text.
            code_points = tf.strings.unicode_decode(tf.strings.join([text, "\n"]), "UTF-8", errors="ignore")
            space = is_space(code_points.values)
            after = tf.concat([[True], space[:-1]], axis=0)
            before = tf.concat([space[1:], [True]], axis=0)
            starts, ends = tf.where(~space & after)[:, 0], tf.where(~space & before)[:, 0] + 1  # [W], `ends` exclusive
            word_splits = tf.searchsorted(starts, code_points.row_splits, out_type=tf.int64)  # [B + 1]
            words = tf.gather(code_points.values, tf.ragged.range(starts, ends))  # [W, (code points)]
            word_ids = inputs.tokenize.encode_words(words)  # [W, (tokens)]
            ids = _rows(word_ids.values, tf.gather(word_ids.row_splits, word_splits))  # [B, (tokens)]
            places = tf.gather(tf.pad(inputs.places(ids).values, [[0, 1]]), word_ids.row_starts())
            place = tf.where(word_ids.row_lengths() > 0, places, 0)
            row = _rows(place, word_splits).value_rowids()
            packed = inputs.pack(ids)
        scores = tf.nn.softmax(tf.cast(outputs(packed), tf.float32))  # [B, T', L]
        with tf.device("CPU:0"):
            odds = tf.gather_nd(scores, tf.stack([row, place], axis=1))  # [W, L]
            tags = tf.gather(tuple(labels), tf.argmax(odds, axis=-1))
            by_row = {
                "words": tf.strings.unicode_encode(words, "UTF-8"),
                "tags": tf.where(place > 0, tags, OUTSIDE),
                "scores": tf.where(place > 0, tf.reduce_max(odds, axis=-1), 0.0),
            }
            begin = tf.gather(code_points.row_starts(), row)
            within = _without_punctuation(code_points.values, starts, ends)
            by_row |= {name: edge - begin for name, edge in zip(("starts", "ends"), within, strict=True)}
            return {name: _rows(values, word_splits).to_tensor() for name, values in by_row.items()}

    def written(answers):
        return {"answer": tf.strings.strip(tf.strings.reduce_join(answers["tags"], axis=1, separator=" "))}

    return ServedAnswers(text_specs("text"), answer, written)


def vector_answers(embed: Callable[[tf.Tensor], Tensors], written: str) -> ServedAnswers:
    """text, text_pair string[B] -> vectors float[B, 2, H] of length 1, and score float[B], their cosine.

    Args:
        embed: the signature `embed`.
        written: name of the output that is the answer.
    """

    def answer(text, text_pair):
        vectors = tf.stack([embed(texts)["embedding"] for texts in (text, text_pair)], axis=1)
        vectors = tf.math.l2_normalize(vectors, axis=-1)
        return {"vectors": vectors, "score": tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)}

    def as_written(answers):
        return {"answer": answers[written] if written == "vectors" else _number(answers[written])}

    return ServedAnswers(text_specs("text", "text_pair"), answer, as_written)


def _texts(pair: bool) -> list[tf.TensorSpec]:
    return text_specs("text", "text_pair") if pair else text_specs("text")


def _number(values: tf.Tensor) -> tf.Tensor:
    # Nine digits distinguish any two float32 values.
    return tf.strings.as_string(values, precision=9, shortest=True)


def _without_punctuation(code_points, starts, ends):
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
