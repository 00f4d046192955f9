"""Attention by the distance of two tokens: rotary positions, the bias of MPNet and T5, and DeBERTa's disentangled one.

Shapes: B batch, T tokens, A heads, D = H / A, N `max_position_embeddings`, R rows of a table of distances.

Scores are computed for the 2 T - 1 distances of a row and then shifted into [T, T]: a gather of T x T numbers, and its
gradient, are many times slower than a product.
"""

import keras
import numpy as np
from keras import ops

from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import TruncatedNormal


def rotary_table(positions, size: int, base: float):
    """Cosines and sines that turn heads of width D = `size` at `positions` [T]: float32 [2, T, D].

    The coordinates of pair i are numbers i and i + D / 2 of a head; its angle is the position times base^(-2 i / D).
    """
    frequencies = (base ** -(np.arange(0, size, 2) / size)).astype("float32")
    angles = ops.cast(positions, "float32")[:, None] * frequencies
    cos, sin = ops.cos(angles), ops.sin(angles)
    return ops.stack([ops.concatenate([cos, cos], axis=-1), ops.concatenate([-sin, sin], axis=-1)])


def rotate(x, table):
    """Turns heads [B, A, T, D] by the angles of `rotary_table`."""
    first, second = ops.split(x, 2, axis=-1)
    return x * table[0] + ops.concatenate([second, first], axis=-1) * table[1]


def buckets(config: BertConfig, length):
    """The row of each distance query - key = T - 1, ..., 0, ..., 1 - T of T = `length` tokens: int32 [2 T - 1].

    Half of the buckets of a side are single distances; the others grow by a constant factor up to
    `max_relative_distance`. In float32, as elsewhere: some distances lie on the edge of a bucket.
    """
    most = config.max_position_embeddings
    distance = np.arange(most - 1, -most, -1)
    size, count, longest = np.abs(distance), config.relative_buckets, config.max_relative_distance
    is_bias = config.relative_attention == "bias"
    exact = count // 4 if is_bias else count // 2
    steps = np.log(np.maximum(size, exact).astype("float32") / exact)
    if is_bias:  # of T5 (mesh_tensorflow, transformer_layers.py): keys before the query, then keys after it
        far = exact + (steps / np.float32(np.log(longest / exact)) * exact).astype("int32")
        bucket = np.where(size < exact, size, np.minimum(far, 2 * exact - 1)) + 2 * exact * (distance < 0)
    else:  # of DeBERTa-v2 (microsoft/DeBERTa, da_utils.py): row R / 2 is of distance 0
        far = np.ceil(steps / np.log(np.float32((longest - 1) / exact)) * (exact - 1)).astype("int32") + exact
        bucket = np.where(size <= exact, distance, far * np.sign(distance)) + count
    rows = np.clip(bucket, 0, config.distance_rows - 1).astype("int32")
    return ops.convert_to_tensor(rows)[most - length : most + length - 1]


def by_key(x):
    """From scores of distances, [..., T, 2 T - 1], to those of keys, [..., T, T].

    Column c of query i is key i + c - (T - 1). Each row is one column further than the one before it, so that the
    wanted columns lie below each other if the rows, with a column more, are cut at one column less.
    """
    *outer, length, width = ops.shape(x)
    x = ops.reshape(ops.pad(x, [(0, 0)] * (len(outer) + 1) + [(0, 1)]), (*outer, length * (width + 1)))
    return ops.reshape(x[..., length - 1 : -1], (*outer, length, width))[..., :length]


def distance_scores(config: BertConfig, query, key, queries, keys):
    """Scores of each query with its distance to the key, and of each key with the query's to it: [B, A, T, T].

    `query`, `key`: float [B, A, T, D]. `queries`, `keys`: of the table of distances, float [R, H].
    """
    rows = buckets(config, ops.shape(query)[2])

    def scores(x, vectors, rows):
        vectors = ops.reshape(ops.take(vectors, rows, axis=0), (-1, *x.shape[1::2]))  # [2 T - 1, A, D]
        return by_key(ops.matmul(x, ops.transpose(vectors, (1, 2, 0))))

    return scores(query, keys, rows) + ops.swapaxes(scores(key, queries, ops.flip(rows)), -1, -2)


class RelativePositions(keras.layers.Layer):
    """The table of distances, one for all layers: a number for each head, or a vector that is normalised.

    Call: `input_ids` int [B, T], of which T counts -> the `positions` of `SelfAttention`: float [A, T, T], or,
    disentangled, [R, H].
    """

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed
        norm = {"epsilon": config.layer_norm_eps, "center": config.use_bias, "name": "layer_norm"}
        is_bias = config.relative_attention == "bias"
        self.layer_norm = None if is_bias else keras.layers.LayerNormalization(**norm)

    def build(self, input_shape=None):
        config = self.config
        width = config.hidden_size if self.layer_norm else config.num_attention_heads
        draw = TruncatedNormal(self.seed, config.initializer_range)
        self.embeddings = self.add_weight(name="embeddings", shape=(config.distance_rows, width), initializer=draw)
        if self.layer_norm is not None:
            self.layer_norm.build((None, None, width))

    def call(self, input_ids):
        table = ops.cast(self.embeddings, self.compute_dtype)
        if self.layer_norm is not None:
            return self.layer_norm(table[None])[0]
        length = ops.shape(input_ids)[1]
        scores = ops.transpose(ops.take(table, buckets(self.config, length), axis=0))  # [A, 2 T - 1]
        return by_key(ops.tile(scores[:, None], (1, length, 1)))
