"""FLOPs of a training step and of the devices, for model FLOPs utilisation (MFU, arXiv 2204.02311).

A multiplication and an addition are two FLOPs. Only the model's matrix products are counted, including those of
padding; the backward pass is twice the forward pass.
"""

import functools
import time

import keras

from bert_keras.models.config import BertConfig
from bert_keras.models.left_to_right import GptBert
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives.distillation import Taught

SECONDS_BETWEEN_MEASUREMENTS = 20.0


def training_flops(config: BertConfig, sequence_length: int, predictions: float) -> float:
    """FLOPs of one sequence, forward and backward, with the masked-LM head at `predictions` positions.

    BERT-base, 128 tokens, 20 predictions: 6 x 128 x 85 million weights of the encoder, 6 x 20 x 24 million of the
    head, and 2 % for attention scores: 69.9e9.
    """
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.of_width().hidden_size
    weights = 4 * hidden**2 + (3 if config.gated_feed_forward else 2) * hidden * inner
    near = min(sequence_length, 3 * config.local_attention // 2)  # keys of a local layer (`BertBackbone`)
    keys = [near if config.is_local(layer) else sequence_length for layer in range(config.num_hidden_layers)]
    products = 6 if config.relative_attention == "disentangled" else 2  # scores and context; of 2 T distances, two more
    attention = products * hidden * sum(keys)  # of a token
    projection = width * hidden if width != hidden else 0
    encoder = sequence_length * (projection + config.num_hidden_layers * weights + attention)
    head = predictions * width * (hidden + config.vocab_size)
    pooler = hidden * (hidden + 2)
    return 6.0 * (encoder + head + pooler)


def known_training_flops(model: keras.Model, sequence_length: int, predictions: float) -> float | None:
    """`training_flops` of a `BertForPreTraining`, with those of its teacher if it has one; None for other models."""
    if isinstance(model, Taught):
        student = known_training_flops(model.student, sequence_length, predictions)
        # The teacher runs forward only, for a GPT-BERT on half of the rows.
        part = 6 if isinstance(model.student, GptBert) else 3
        return student and student + training_flops(model.teacher.backbone.config, sequence_length, predictions) / part
    if isinstance(model, GptBert):
        predictions = (predictions + sequence_length) / 2
    if isinstance(model, BertForPreTraining):
        return training_flops(model.config, sequence_length, predictions)
    return None


class Ceiling:
    """The highest measured speed of the devices; repeated, because the machine may be busy during one measurement."""

    def __init__(self, devices: int, dtype: str):
        self._devices, self._dtype = devices, dtype
        self._best = 0.0
        self._measure()

    def utilization(self, flops_per_second: float) -> float | None:
        """The used part of the ceiling, at most 1; None if the machine is too busy to measure the ceiling."""
        if flops_per_second > self._best or time.monotonic() - self._measured > SECONDS_BETWEEN_MEASUREMENTS:
            self._measure()
        return flops_per_second / self._best if flops_per_second <= self._best else None

    def _measure(self) -> None:
        self._best = max(self._best, self._devices * matmul_flops_per_second(self._dtype))
        self._measured = time.monotonic()


def matmul_flops_per_second(dtype: str) -> float:
    """Speed of one device on a large square matrix product: best of three, after a warm-up."""
    if keras.backend.backend() == "jax":
        import jax

        compiled, accelerated = jax.jit, jax.default_backend() != "cpu"
    else:
        import tensorflow as tf

        compiled = functools.partial(tf.function, autograph=False)
        accelerated = bool(tf.config.list_logical_devices("GPU"))
    size = 8192 if accelerated else 1024
    matrix = keras.ops.ones((size, size), dtype)
    product = compiled(lambda x: keras.ops.sum(keras.ops.matmul(x, x)))
    float(product(matrix))
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        float(product(matrix))  # waits for the device
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best
