"""The perplexity that a model must beat to have learned anything but frequencies."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from bert_keras.features import ExampleSpec
from bert_keras.input_pipeline import eval_batches, shard_files

BATCH = 4096


def unigram_perplexity(spec: ExampleSpec, train_pattern: str, eval_pattern: str) -> float:
    """exp of the mean -log p(token) over the held-out masked positions, p from the training split.

    p(token) is its share of all positions of the training examples, originals put back where they were masked, with
    one added to each count, so that no token is impossible.
    """
    counts = np.ones(spec.vocab_size)
    stored_masked = spec.masking.when == "static"
    for batch in _batches(spec, train_pattern, masked=stored_masked):
        ids = batch["input_ids"].numpy()
        if stored_masked:
            rows, columns = np.nonzero(batch["masked_lm_weights"].numpy())
            labels = batch["masked_lm_ids"].numpy()[rows, columns]
            ids[rows, batch["masked_lm_positions"].numpy()[rows, columns]] = labels
        counts += np.bincount(ids[batch["input_mask"].numpy() > 0], minlength=spec.vocab_size)
    log_p = np.log(counts / counts.sum())
    total, predictions = 0.0, 0
    for batch in _batches(spec, eval_pattern, masked=True):
        labels = batch["masked_lm_ids"].numpy()[batch["masked_lm_weights"].numpy() > 0]
        total -= log_p[labels].sum()
        predictions += len(labels)
    return float(np.exp(total / max(1, predictions)))


def _batches(spec: ExampleSpec, pattern: str, *, masked: bool) -> tf.data.Dataset:
    return eval_batches(shard_files(pattern), spec.layout, batch_size=BATCH, masked=masked)
