"""The layers of BERT (google-research/bert, modeling.py), in `keras.ops` only.

Shapes: B batch, T tokens, P predictions, H hidden, A heads, D = H / A, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import ops

from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import Dropout

# Added to the attention score of a padded key. Finite, as in the original, so that a row of padding gives no NaN.
MASKED_SCORE = -10000.0


def initializer(config: BertConfig, seed: int) -> keras.initializers.Initializer:
    """Truncated normal, cut at two standard deviations; its actual deviation is 0.88 `initializer_range`."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range, seed=seed)


def gelu(x):
    """The tanh approximation, as in the original since its second release (at most 4.73e-4 off the exact gelu)."""
    return keras.activations.gelu(x, approximate=True)


def gelu_erf(x):
    """The exact gelu, x Phi(x), as in the original's first release and Hugging Face."""
    return keras.activations.gelu(x, approximate=False)


def activation(config: BertConfig) -> Callable:
    """The function that `config.hidden_act` names."""
    return {"gelu_tanh": gelu, "gelu_erf": gelu_erf}[config.hidden_act]


def layer_norm(config: BertConfig, name: str) -> keras.layers.LayerNormalization:
    """Layer normalisation with BERT's epsilon, 1e-12; Keras' own default is 1e-3."""
    return keras.layers.LayerNormalization(epsilon=config.layer_norm_eps, name=name)


class BertEmbeddings(keras.layers.Layer):
    """Sum of word, position and segment embeddings, then layer normalisation, then dropout.

    Call: `input_ids` int [B, T], `segment_ids` int [B, T], `position_ids` int [B, T] or None for 0, 1, ..., T - 1
    -> float [B, T, H].
    """

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed

        def embedding(rows: int, seed: int, name: str) -> keras.layers.Embedding:
            return keras.layers.Embedding(
                rows, config.hidden_size, embeddings_initializer=initializer(config, seed), name=name
            )

        self.word_embeddings = embedding(config.vocab_size, seed, "word_embeddings")
        self.position_embeddings = embedding(config.max_position_embeddings, seed + 1, "position_embeddings")
        self.token_type_embeddings = embedding(config.type_vocab_size, seed + 2, "token_type_embeddings")
        self.layer_norm = layer_norm(config, "layer_norm")
        self.dropout = Dropout(config.hidden_dropout_prob, seed=seed + 3)

    def build(self, input_shape):
        self.word_embeddings.build(None)
        self.position_embeddings.build(None)
        self.token_type_embeddings.build(None)
        self.layer_norm.build((None, None, self.config.hidden_size))
        self.built = True

    def call(self, input_ids, segment_ids, position_ids=None, training=False):
        x = self.word_embeddings(input_ids)
        # A product, as in the original: the gradient of a look-up would add all tokens into a few rows one by one.
        types = ops.one_hot(segment_ids, self.config.type_vocab_size, dtype=x.dtype)
        x = x + ops.matmul(types, ops.cast(self.token_type_embeddings.embeddings, x.dtype))
        if position_ids is None:
            positions = ops.cast(self.position_embeddings.embeddings, x.dtype)[: ops.shape(input_ids)[1]]
        else:
            positions = self.position_embeddings(position_ids)
        x = x + positions
        return self.dropout(self.layer_norm(x), training=training)


class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention over the visible positions of each query.

    Call: `x` float [B, T, H], `score_bias` float [B, 1, 1 or T, T] (0, or `MASKED_SCORE` at a key hidden from the
    query: padding, another sequence of the row) -> float [B, T, H]. Padded queries are computed too.

    Attributes:
        is_fused: if set before `build`, the layer has one kernel and one bias for query, key and value, as `fuse` gives
            them. For serving; a fused layer cannot be trained.
    """

    is_fused = False

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed

        def dense(seed: int, name: str) -> keras.layers.Dense:
            return keras.layers.Dense(config.hidden_size, kernel_initializer=initializer(config, seed), name=name)

        self.query, self.key = dense(seed, "query"), dense(seed + 1, "key")
        self.value, self.output_dense = dense(seed + 2, "value"), dense(seed + 3, "output")
        self.dropout = Dropout(config.attention_probs_dropout_prob, seed=seed + 4)

    def build(self, input_shape):
        hidden = self.config.hidden_size
        if self.is_fused:
            self.kernel = self.add_weight(name="kernel", shape=(hidden, 3 * hidden))
            self.bias = self.add_weight(name="bias", shape=(3 * hidden,))
        for dense in (self.output_dense,) if self.is_fused else (self.query, self.key, self.value, self.output_dense):
            dense.build((None, None, hidden))
        self.built = True

    def fuse(self, trained: SelfAttention) -> None:
        """Sets the weights of this fused layer to those of `trained`, which is not fused."""
        parts = (trained.query, trained.key, trained.value)
        # Rounding before scaling, as in a call in bfloat16.
        kernels = [ops.cast(dense.kernel, self.kernel.dtype) for dense in parts]
        biases = [ops.cast(dense.bias, self.bias.dtype) for dense in parts]
        self.kernel.assign(self._side_by_side(*kernels))
        self.bias.assign(self._side_by_side(*biases))

    def _side_by_side(self, query, key, value):
        """Weights of one product for all three. The query's weights are scaled: they are fewer than its outputs."""
        scale = (self.config.hidden_size // self.config.num_attention_heads) ** -0.5
        return ops.concatenate([query * scale, key, value], axis=-1)

    def call(self, x, score_bias, training=False):
        heads = self.config.num_attention_heads
        size = self.config.hidden_size // heads
        batch, length = ops.shape(x)[0], ops.shape(x)[1]
        if self.is_fused:
            kernel, bias = self.kernel, self.bias
        else:
            kernel = self._side_by_side(self.query.kernel, self.key.kernel, self.value.kernel)
            bias = self._side_by_side(self.query.bias, self.key.bias, self.value.bias)
        projected = ops.reshape(ops.matmul(x, kernel) + bias, (batch, length, 3, heads, size))
        query, key, value = ops.unstack(ops.transpose(projected, (2, 0, 3, 1, 4)), 3)  # [B, A, T, D]
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, A, T, T]
        probs = ops.softmax(scores + ops.cast(score_bias, scores.dtype), axis=-1)
        context = ops.matmul(self.dropout(probs, training=training), value)  # [B, A, T, D]
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (batch, length, heads * size))
        return self.output_dense(context)


class EncoderLayer(keras.layers.Layer):
    """One Transformer layer, post-layer-norm: `x = LN(x + dropout(f(x)))` for attention, then feed-forward.

    Call: `x` float [B, T, H], `score_bias` float [B, 1, 1 or T, T] -> float [B, T, H].
    """

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed
        self.attention = SelfAttention(config, seed, name="attention")
        self.attention_dropout = Dropout(config.hidden_dropout_prob, seed=seed + 5)
        self.attention_layer_norm = layer_norm(config, "attention_layer_norm")
        self.intermediate = keras.layers.Dense(
            config.intermediate_size,
            activation=activation(config),
            kernel_initializer=initializer(config, seed + 6),
            name="intermediate",
        )
        self.output_dense = keras.layers.Dense(
            config.hidden_size, kernel_initializer=initializer(config, seed + 7), name="output"
        )
        self.output_dropout = Dropout(config.hidden_dropout_prob, seed=seed + 8)
        self.output_layer_norm = layer_norm(config, "output_layer_norm")

    def build(self, input_shape):
        hidden = (None, None, self.config.hidden_size)
        self.attention.build(hidden)
        self.attention_layer_norm.build(hidden)
        self.intermediate.build(hidden)
        self.output_dense.build((None, None, self.config.intermediate_size))
        self.output_layer_norm.build(hidden)
        self.built = True

    def call(self, x, score_bias, training=False):
        attended = self.attention(x, score_bias, training=training)
        x = self.attention_layer_norm(x + self.attention_dropout(attended, training=training))
        output = self.output_dense(self.intermediate(x))
        return self.output_layer_norm(x + self.output_dropout(output, training=training))
