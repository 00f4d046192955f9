"""The layers of BERT (google-research/bert, modeling.py), in `keras.ops` only.

Shapes: B batch, T tokens, P predictions, H hidden, A heads, D = H / A, V vocabulary.
"""

from collections.abc import Callable

import keras
from keras import ops

from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import Dropout, TruncatedNormal
from bert_keras.models.relative_positions import distance_scores, rotate

# A program that imported Keras before this package has the type in its ~/.keras/keras.json.
keras.config.set_floatx("float32")

# Added to the attention score of a padded key. Finite, as in the original, so that a row of padding gives no NaN.
MASKED_SCORE = -10000.0


def initializer(config: BertConfig, seed: int) -> TruncatedNormal:
    """Truncated normal, cut at two standard deviations; its actual deviation is 0.88 `initializer_range`."""
    return TruncatedNormal(seed, config.initializer_range)


def add_bias(layer: keras.layers.Layer, x, bias):
    """x + bias in the type of x; in mixed precision added in float32, so that the gradient of `bias` is a float32 sum.

    JAX sums over the tokens in the type of the addition: in bfloat16 the gradients of biases were up to 22 % off.
    """
    if layer.variable_dtype == layer.compute_dtype:
        return x + ops.cast(bias, x.dtype)
    return ops.cast(ops.cast(x, "float32") + ops.cast(bias, "float32"), x.dtype)


class Dense(keras.layers.Dense):
    """`keras.layers.Dense` with `add_bias`."""

    def call(self, inputs, training=None):
        x = ops.matmul(inputs, self.kernel)
        return self.activation(add_bias(self, x, self.bias) if self.use_bias else x)


def dense(config: BertConfig, units: int, seed: int, name: str, function=None, **kwargs) -> Dense:
    """A dense layer with BERT's initial weights."""
    return Dense(units, function, kernel_initializer=initializer(config, seed), name=name, **kwargs)


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
    return keras.layers.LayerNormalization(epsilon=config.layer_norm_eps, center=config.use_bias, name=name)


def in_blocks(x, size: int, with_neighbours: bool = False):
    """Cuts [B, A, T, D] into blocks of `size` tokens, [B, A, blocks, size, D]; zeros fill the last one.

    With neighbours: [B, A, blocks, 3 size, D], each block between the one before and the one after it, zeros beyond the
    ends. So a block of queries finds all keys at most `size` tokens away.
    """
    batch, heads, length, width = ops.shape(x)
    ends = (size, size) if with_neighbours else (0, 0)
    x = ops.pad(x, ((0, 0), (0, 0), (ends[0], ends[1] + -length % size), (0, 0)))
    x = ops.reshape(x, (batch, heads, -1, size, width))
    return ops.concatenate([x[:, :, :-2], x[:, :, 1:-1], x[:, :, 2:]], axis=3) if with_neighbours else x


class BertEmbeddings(keras.layers.Layer):
    """Sum of word, position and segment embeddings, then layer normalisation, then dropout.

    Rotary positions have no table, and no segments (`type_vocab_size` 0) none either.

    Call: `input_ids` int [B, T], `segment_ids` int [B, T], `position_ids` int [B, T] or None for 0, 1, ..., T - 1
    -> float [B, T, H].
    """

    def __init__(
        self, config: BertConfig, seed: int = 0, word_embeddings: keras.layers.Embedding | None = None, **kwargs
    ):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed

        def embedding(rows: int, seed: int, name: str) -> keras.layers.Embedding:
            return keras.layers.Embedding(
                rows, config.hidden_size, embeddings_initializer=initializer(config, seed), name=name
            )

        self.word_embeddings = word_embeddings or embedding(config.vocab_size, seed, "word_embeddings")
        if config.position_embedding == "learned":
            self.position_embeddings = embedding(config.max_position_embeddings, seed + 1, "position_embeddings")
        if config.type_vocab_size:
            self.token_type_embeddings = embedding(config.type_vocab_size, seed + 2, "token_type_embeddings")
        is_static = config.encoder == "static"
        self.layer_norm = keras.layers.Identity() if is_static else layer_norm(config, "layer_norm")
        self.dropout = Dropout(config.hidden_dropout_prob, seed=seed + 3)

    def build(self, input_shape):
        self.word_embeddings.build(None)
        if self.config.position_embedding == "learned":
            self.position_embeddings.build(None)
        if self.config.type_vocab_size:
            self.token_type_embeddings.build(None)
        self.layer_norm.build((None, None, self.config.hidden_size))

    def call(self, input_ids, segment_ids, position_ids=None, training=False):
        x = self.word_embeddings(input_ids)
        if self.config.type_vocab_size:
            # A product, as in the original: the gradient of a look-up would add all tokens into a few rows one by one.
            types = ops.one_hot(segment_ids, self.config.type_vocab_size, dtype=x.dtype)
            x = x + ops.matmul(types, ops.cast(self.token_type_embeddings.embeddings, x.dtype))
        if self.config.position_embedding == "learned":
            if position_ids is None:
                positions = ops.cast(self.position_embeddings.embeddings, x.dtype)[: ops.shape(input_ids)[1]]
            else:
                positions = self.position_embeddings(position_ids)
            x = add_bias(self, x, positions)
        return self.dropout(self.layer_norm(x), training=training)


def has_kernel(dtype) -> bool:
    """Return whether attention without dropout is one kernel, cuDNN's, which stores no scores: JAX on a GPU, bfloat16.

    A TPU has none that would do: that of `keras.ops.dot_product_attention` ignores its `bias`, so padding, without a
    word, and takes one mask for the whole batch.
    """
    if keras.backend.backend() != "jax" or keras.backend.standardize_dtype(dtype) != "bfloat16":
        return False
    import jax

    return jax.default_backend() == "gpu"


def _in_one_kernel(query, key, value, score_bias):
    """Attention without dropout, [B, A, T, D] -> [B, T, A, D]; a `score_bias` of `SelfAttention`, not in blocks."""
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    if len(score_bias.shape) == 1:
        import jax

        lengths = {"key_value_seq_lengths": score_bias, "implementation": "cudnn"}
        return jax.nn.dot_product_attention(query, key, value, scale=1.0, **lengths)
    length = query.shape[1]
    bias = ops.broadcast_to(score_bias, (*score_bias.shape[:2], length, length))
    return ops.dot_product_attention(query, key, value, bias=ops.cast(bias, query.dtype), scale=1.0)


class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention over the visible positions of each query.

    Call: `x` float [B, T, H], `score_bias` float [B, 1, 1 or T, T] (0, or `MASKED_SCORE` at a key hidden from the
    query: padding, another sequence of the row), `positions` a `rotary_table`, what `RelativePositions` returns, or
    None -> float [B, T, H]. Padded queries are computed too. A `score_bias` [B, 1, blocks, size, 3 size] has the keys
    of `in_blocks`: the others are not read. Where `has_kernel` and nothing drops out, it may be lengths, int32 [B]: the
    keys from there on are hidden. `is_fused`: if set before `build`, the layer has one kernel and one bias for query,
    key and value, as `fuse` gives them, and what `fuse_positions` computes. For serving; a fused layer cannot be
    trained.
    """

    is_fused = False

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed

        def projection(seed: int, name: str) -> Dense:
            return dense(config, config.hidden_size, seed, name, use_bias=config.use_bias)

        self.query, self.key = projection(seed, "query"), projection(seed + 1, "key")
        self.value, self.output_dense = projection(seed + 2, "value"), projection(seed + 3, "output")
        self.dropout = Dropout(config.attention_probs_dropout_prob, seed=seed + 4)
        self.is_disentangled = config.relative_attention == "disentangled"
        if self.is_disentangled:
            self.position_dropout = Dropout(config.hidden_dropout_prob, seed=seed + 9)
            shares = config.shares_position_keys
            self.position_query = self.query if shares else projection(seed + 10, "position_query")
            self.position_key = self.key if shares else projection(seed + 11, "position_key")

    def build(self, input_shape):
        hidden = self.config.hidden_size
        layers = [self.output_dense]
        if self.is_fused:
            self.kernel = self.add_weight(name="kernel", shape=(hidden, 3 * hidden))
            if self.config.use_bias:
                self.bias = self.add_weight(name="bias", shape=(3 * hidden,))
            if self.is_disentangled:
                self.positions = self.add_weight(name="positions", shape=(2, self.config.distance_rows, hidden))
        else:
            layers = [self.query, self.key, self.value, self.output_dense]
            if self.is_disentangled and not self.config.shares_position_keys:
                layers += [self.position_query, self.position_key]
        for layer in layers:
            layer.build((None, None, hidden))

    def fuse(self, trained: "SelfAttention") -> None:
        """Sets the weights of this fused layer to those of `trained`, which is not fused."""
        parts = (trained.query, trained.key, trained.value)
        # Rounding before scaling, as in a call in bfloat16.
        kernels = [ops.cast(dense.kernel, self.kernel.dtype) for dense in parts]
        self.kernel.assign(self._side_by_side(*kernels))
        if self.config.use_bias:
            self.bias.assign(self._side_by_side(*(ops.cast(dense.bias, self.bias.dtype) for dense in parts)))

    def fuse_positions(self, trained: "SelfAttention", positions) -> None:
        """Sets what the table of distances, `positions` [R, H], is multiplied with in each call of a fused layer."""
        self.positions.assign(trained._of_positions(positions))

    def _side_by_side(self, query, *others):
        """Weights of one product for all. The query's weights are scaled: they are fewer than its outputs."""
        terms = 3 if self.is_disentangled else 1
        scale = (self.config.hidden_size // self.config.num_attention_heads * terms) ** -0.5
        return ops.concatenate([query * scale, *others], axis=-1)

    def _of_positions(self, positions, training=False):
        """Queries and keys of the table of distances, [2, R, H]."""
        if training:
            positions = self.position_dropout(positions, training=True)
        parts, dtype = (self.position_query, self.position_key), positions.dtype
        projected = ops.matmul(positions, self._side_by_side(*(ops.cast(p.kernel, dtype) for p in parts)))
        if self.config.use_bias:
            projected = add_bias(self, projected, self._side_by_side(*(ops.cast(p.bias, dtype) for p in parts)))
        return ops.stack(ops.split(projected, 2, axis=-1))

    def call(self, x, score_bias, positions=None, training=False):
        heads = self.config.num_attention_heads
        size = self.config.hidden_size // heads
        batch, length = ops.shape(x)[0], ops.shape(x)[1]
        parts = (self.query, self.key, self.value)
        projected = ops.matmul(x, self.kernel if self.is_fused else self._side_by_side(*(p.kernel for p in parts)))
        if self.config.use_bias:
            biases = self.bias if self.is_fused else self._side_by_side(*(p.bias for p in parts))
            projected = add_bias(self, projected, biases)
        projected = ops.reshape(projected, (batch, length, 3, heads, size))
        query, key, value = ops.unstack(ops.transpose(projected, (2, 0, 3, 1, 4)), 3)  # [B, A, T, D]
        relative = self.config.relative_attention
        if relative == "none" and positions is not None:
            query, key = rotate(query, positions), rotate(key, positions)
        if is_blocked := len(score_bias.shape) == 5:
            block = score_bias.shape[3]
            query, key, value = in_blocks(query, block), in_blocks(key, block, True), in_blocks(value, block, True)
        drops = training and self.dropout.rate > 0
        if has_kernel(query.dtype) and not is_blocked and not drops and relative == "none":
            context = _in_one_kernel(query, key, value, score_bias)
        else:
            scores = ops.matmul(query, ops.swapaxes(key, -1, -2))  # [B, A, T, T], or [B, A, blocks, size, 3 size]
            if relative == "bias":
                scores = scores + positions
            elif relative == "disentangled":
                positions = self.positions if self.is_fused else self._of_positions(positions, training)
                scores = scores + distance_scores(self.config, query, key, *ops.unstack(positions, 2))
            probs = ops.softmax(scores + ops.cast(score_bias, scores.dtype), axis=-1)
            context = ops.matmul(self.dropout(probs, training=training), value)  # [B, A, T, D]
            if is_blocked:
                context = ops.reshape(context, (batch, heads, -1, size))[:, :, :length]
            context = ops.transpose(context, (0, 2, 1, 3))
        context = ops.reshape(context, (batch, length, heads * size))
        return self.output_dense(context)


class EncoderLayer(keras.layers.Layer):
    """One Transformer layer: attention, then feed-forward, each with a sum and layer normalisation.

    Post-norm `x = LN(x + dropout(f(x)))`, or pre-norm `x = x + dropout(f(LN(x)))`.

    Call: as `SelfAttention`. `is_first`: the layer follows the embeddings, which are normalised: pre-norm attention is
    then without (but for shared layers).
    """

    def __init__(self, config: BertConfig, seed: int = 0, is_first: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed
        self.attention = SelfAttention(config, seed, name="attention")
        self.attention_dropout = Dropout(config.hidden_dropout_prob, seed=seed + 5)
        self.attention_layer_norm = layer_norm(config, "attention_layer_norm")
        if is_first and config.norm_place == "pre" and not config.shared_layers:
            self.attention_layer_norm = keras.layers.Identity()
        self.activation = activation(config)
        is_gated, width = config.gated_feed_forward, config.intermediate_size
        width, function = (2 * width, None) if is_gated else (width, self.activation)
        self.intermediate = dense(config, width, seed + 6, "intermediate", function, use_bias=config.use_bias)
        self.output_dense = dense(config, config.hidden_size, seed + 7, "output", use_bias=config.use_bias)
        self.output_dropout = Dropout(config.hidden_dropout_prob, seed=seed + 8)
        self.output_layer_norm = layer_norm(config, "output_layer_norm")

    def build(self, input_shape):
        hidden = (None, None, self.config.hidden_size)
        self.attention.build(hidden)
        self.attention_layer_norm.build(hidden)
        self.intermediate.build(hidden)
        self.output_dense.build((None, None, self.config.intermediate_size))
        self.output_layer_norm.build(hidden)

    def call(self, x, score_bias, positions=None, training=False):
        def attend(x):
            return self.attention(x, score_bias, positions, training=training)

        def add(x, function, dropout, norm):
            if self.config.norm_place == "pre":
                return x + dropout(function(norm(x)), training=training)
            return norm(x + dropout(function(x), training=training))

        x = add(x, attend, self.attention_dropout, self.attention_layer_norm)
        return add(x, self._feed_forward, self.output_dropout, self.output_layer_norm)

    def _feed_forward(self, x):
        x = self.intermediate(x)
        if self.config.gated_feed_forward:
            x, gate = ops.split(x, 2, axis=-1)
            x = self.activation(x) * gate
        return self.output_dense(x)
