"""Baselines that ignore the context, from token frequencies, which a model must beat.

Legend: B examples, P predictions, V vocabulary.
"""

from __future__ import annotations

import itertools
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


def unigram_model(spec: ExampleSpec, train_dir: str) -> np.ndarray:
    """log p of each token, float32 [V], from the training split.

    p(token) is its share of all positions of the training examples, with the original tokens instead of masks and one
    added to each count, so that no token has probability 0.
    """
    counts = np.ones(spec.vocab_size)
    stored_masked = spec.objective != "left_to_right" and spec.masking.when == "static"
    batches = eval_batches(shard_files(train_dir), spec.layout, batch_size=BATCH, masked=stored_masked)
    for batch in itertools.islice(batches, COUNTED_EXAMPLES // BATCH):
        ids = batch["input_ids"]
        if stored_masked:
            rows, columns = np.nonzero(batch["masked_lm_weights"])
            ids[rows, batch["masked_lm_positions"][rows, columns]] = batch["masked_lm_ids"][rows, columns]
        counts += np.bincount(ids[batch["input_mask"] > 0], minlength=spec.vocab_size)
    return np.log(counts / counts.sum()).astype("float32")


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
