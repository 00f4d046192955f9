"""The perplexity that a model must beat to have learned anything but frequencies."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from bert_keras.features import ExampleSpec
from bert_keras.input_pipeline import eval_batches, shard_files
from bert_keras.objectives.next_token import next_tokens

BATCH = 4096


def unigram_perplexity(spec: ExampleSpec, train_pattern: str, eval_pattern: str) -> float:
    """exp of the mean -log p(token) over the held-out tokens that are predicted, p from the training split.

    Those are the masked tokens, or of `left_to_right` every next one.

    p(token) is its share of all positions of the training examples, originals put back where they were masked, with
    one added to each count, so that no token is impossible.
    """
    counts = np.ones(spec.vocab_size)
    nothing_masked = spec.objective == "left_to_right"
    stored_masked = not nothing_masked and spec.masking.when == "static"
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
        names = "masked_lm_ids", "masked_lm_weights"
        labels, weights = next_tokens(batch) if nothing_masked else (batch[name] for name in names)
        labels = labels.numpy()[weights.numpy() > 0]
        total -= log_p[labels].sum()
        predictions += len(labels)
    return float(np.exp(total / max(1, predictions)))


def _batches(spec: ExampleSpec, pattern: str, *, masked: bool) -> tf.data.Dataset:
    return eval_batches(shard_files(pattern), spec.layout, batch_size=BATCH, masked=masked)
