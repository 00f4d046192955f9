"""How much arithmetic a training step is, and how much the devices can do (model FLOPs utilisation, arXiv 2204.02311).

A multiplication and an addition are two FLOPs. Counted are the matrix products of the model alone, those of padding
too; the backward pass is twice the forward one.
"""

from __future__ import annotations

import time

import keras

from bert_keras.config import BertConfig
from bert_keras.heads import BertForPreTraining


def training_flops(config: BertConfig, sequence_length: int, predictions: int) -> float:
    """FLOPs of one sequence, forward and backward, with the masked-LM head at `predictions` positions.

    A BERT-base, 128 tokens, 20 predictions: 6 x 128 x 85 million weights of the encoder, 6 x 20 x 24 million of the
    head, and 2 % for attention itself: 69.9e9.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    weights = 4 * hidden**2 + 2 * hidden * inner
    attention = 2 * sequence_length * hidden  # scores and context, a token
    encoder = config.num_hidden_layers * sequence_length * (weights + attention)
    head = predictions * hidden * (hidden + config.vocab_size)
    pooler = hidden * (hidden + 2)
    return 6.0 * (encoder + head + pooler)


def known_training_flops(model: keras.Model, sequence_length: int, predictions: int) -> float | None:
    """`training_flops` of a model that is a BERT for pre-training; of others they are not known."""
    if isinstance(model, BertForPreTraining):
        return training_flops(model.config, sequence_length, predictions)
    return None


def matmul_flops_per_second(dtype: str) -> float:
    """What one device reaches on a large square matrix product: best of three, after one to warm up."""
    import tensorflow as tf

    size = 8192 if tf.config.list_logical_devices("GPU") else 1024
    matrix = tf.ones((size, size), dtype)
    product = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)))
    product(matrix).numpy()
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        product(matrix).numpy()
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best
