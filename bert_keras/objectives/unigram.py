"""Counts of tokens and of their neighbours: baselines that a model must beat, and vectors to begin with.

Legend: B examples, P predictions, T positions, V vocabulary, C contexts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from bert_keras.data.example_format import ExampleSpec
from bert_keras.data.tfrecord_batches import eval_batches, shard_files
from bert_keras.objectives.mlm_nsp import PAIR_KEYS
from bert_keras.objectives.next_token import DIRECTIONS, next_tokens

if TYPE_CHECKING:
    import tensorflow as tf

BATCH = 4096
# Only the first training examples are counted: documents are hashed to shards, so these are a random sample.
COUNTED_EXAMPLES = 1 << 18
# Neighbours that tell tokens apart.
CONTEXTS = 500
DISTANCES = (1, -1, 2, -2)


def _original_ids(spec: ExampleSpec, train_dir: str) -> Iterator[np.ndarray]:
    """The training split in batches of ids, int [B, T]: original tokens instead of masks, -1 for padding."""
    stored_masked = spec.objective != "left_to_right" and spec.masking.when == "static"
    batches = eval_batches(shard_files(train_dir), spec.layout, batch_size=BATCH, masked=stored_masked)
    for batch in itertools.islice(batches, COUNTED_EXAMPLES // BATCH):
        ids = batch["input_ids"]
        if stored_masked:
            rows, columns = np.nonzero(batch["masked_lm_weights"])
            ids[rows, batch["masked_lm_positions"][rows, columns]] = batch["masked_lm_ids"][rows, columns]
        yield np.where(batch["input_mask"] > 0, ids, -1)


def unigram_model(spec: ExampleSpec, train_dir: str) -> np.ndarray:
    """log p of each token, float32 [V], from the training split.

    p(token) is its share of all positions of the training examples, with the original tokens instead of masks and one
    added to each count, so that no token has probability 0.
    """
    counts = np.ones(spec.vocab_size)
    for ids in _original_ids(spec, train_dir):
        counts += np.bincount(ids[ids >= 0], minlength=spec.vocab_size)
    return np.log(counts / counts.sum()).astype("float32")


def neighbour_vectors(spec: ExampleSpec, train_dir: str, log_p: np.ndarray, size: int) -> np.ndarray:
    """Vectors of the tokens, float32 [V, at most `size`], that are alike for tokens with the same neighbours.

    The first principal components of the positive pointwise mutual information with the `CONTEXTS` most frequent
    tokens at each of the `DISTANCES`, times the root of their scale (Levy, Goldberg and Dagan, TACL 2015, sections 2
    and 3.3, which also has the smoothing). 0 for a token with fewer than two neighbours.

    Args:
        log_p: result of `unigram_model`.
    """
    number = min(CONTEXTS, len(log_p), max(1, (1 << 24) // len(log_p)))  # V x C x distances fit in memory
    column = np.full(len(log_p) + 1, number)  # -1, padding, is the last row
    column[np.argsort(-log_p, kind="stable")[:number]] = np.arange(number)
    counts = np.zeros((len(log_p) + 1, len(DISTANCES), number + 1), np.float32)
    for ids in _original_ids(spec, train_dir):
        for index, distance in enumerate(DISTANCES):
            tokens, contexts = ids[:, max(0, -distance) :], ids[:, max(0, distance) :]
            width = ids.shape[1] - abs(distance)
            np.add.at(counts[:, index], (tokens[:, :width], column[contexts[:, :width]]), 1.0)
    counts = counts[:-1, :, :-1]
    of_tokens = counts.sum(2, keepdims=True)
    of_contexts = counts.sum(0) ** 0.75
    expected = of_tokens * (of_contexts / np.maximum(of_contexts.sum(1, keepdims=True), 1.0))
    information = np.log(np.maximum(counts, 1e-9) / np.maximum(expected, 1e-9)).clip(0.0)
    information = np.where(of_tokens > 1, information, 0.0).reshape(len(log_p), -1)
    eigenvalues, directions = np.linalg.eigh(information.T @ information)
    directions = directions[:, : -size - 1 : -1]
    # A direction has two signs, and several workers must begin alike.
    directions *= np.sign(directions[np.abs(directions).argmax(0), np.arange(directions.shape[1])])
    return information @ directions / np.maximum(eigenvalues[: -size - 1 : -1], 1e-9) ** 0.25


def guessed_sums(objective: str, features: dict[str, tf.Tensor], log_p: np.ndarray) -> dict[str, tf.Tensor]:
    """The gate's sums for baseline guesses: `KEY_SUM_guessed` float32 [B, guesses].

    Guesses for tokens: the unigram model, and always its most frequent token; for pairs: always "B follows A", and
    never, which is also "swapped".

    Args:
        log_p: result of `unigram_model`.
    """
    import tensorflow as tf  # the training needs `unigram_model` alone

    if objective == "left_to_right":
        guessed = {"lm": next_tokens(features)}
    elif objective == "bidirectional":
        guessed = {f"{way}_lm": next_tokens(features, way == "backward") for way in DIRECTIONS}
    else:
        guessed = {"mlm": (features["masked_lm_ids"], features["masked_lm_weights"])}
    sums = {}
    for key, (ids, weights) in guessed.items():
        weights = tf.cast(weights, tf.float32)
        nll, hit = -tf.gather(tf.constant(log_p), ids), tf.cast(tf.equal(ids, int(log_p.argmax())), tf.float32)
        for name, values in (("nll", nll), ("correct", hit)):
            sums[f"{key}_{name}_guessed"] = tf.reduce_sum(weights * values, axis=1, keepdims=True)
    if pair := PAIR_KEYS.get(objective):
        is_random = tf.cast(features["next_sentence_labels"], tf.float32)  # [B, S]
        weights = tf.cast(features.get("next_sentence_weights", tf.ones_like(is_random)), tf.float32)
        sums[f"{pair}_correct_guessed"] = tf.stack(
            [tf.reduce_sum(weights * (1.0 - is_random), axis=1), tf.reduce_sum(weights * is_random, axis=1)], axis=1
        )
    return sums
