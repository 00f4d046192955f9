"""The biLM of ELMo (arXiv 1802.05365, section 3.1), a baseline of the BERT paper (figure 3, tables 1 and 7).

It reads token ids; ELMo reads words by their characters.
Shapes: B batch, T tokens, H hidden, V vocabulary, n layers.
"""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from bert_keras.errors import InputError
from bert_keras.models.backbone import ConfiguredModel

# Each direction draws its initial weights and dropout masks from its own range of seeds.
SEEDS_PER_DIRECTION = 64


@dataclasses.dataclass(frozen=True)
class BiLMConfig:
    """Configuration of a biLM; the defaults are ELMo's.

    Attributes:
        vocab_size: V, entries of `vocab.txt`.
        hidden_size: H, width of the token embeddings and of a layer's output in one direction.
        num_layers: n, LSTM layers per direction.
        lstm_size: units of an LSTM, which a dense layer projects to H.
        dropout_prob: dropout before every LSTM and before the softmax.
        initializer_range: standard deviation of the token embeddings, before truncation at two deviations.
    """

    vocab_size: int = 30522
    hidden_size: int = 512
    num_layers: int = 2
    lstm_size: int = 4096
    dropout_prob: float = 0.1
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "num_layers", "lstm_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} is {getattr(self, name)}; it must be at least 1")
        if not 0.0 <= self.dropout_prob < 1.0:
            raise ValueError(f"model.dropout_prob is {self.dropout_prob}; it must be in [0, 1)")


class DirectedLSTM(keras.layers.Layer):
    """The LSTM layers of one direction, each projected to H, with residual connections from the second layer on.

    ELMo feeds the projection back into the LSTM; here the LSTM keeps its own state, so that cuDNN's can be used.

    Call: `x` float [B, T, H], `mask` bool [B, T], its padding on the right -> list of n float [B, T, H]. The backward
    direction starts at the last token that is not padding.
    """

    def __init__(self, config: BiLMConfig, go_backwards: bool, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.go_backwards, self.seed = config, go_backwards, seed
        glorot, orthogonal = keras.initializers.GlorotUniform, keras.initializers.Orthogonal
        seeds = [seed + 4 * index for index in range(config.num_layers)]
        self.dropouts = [keras.layers.Dropout(config.dropout_prob, seed=seed) for seed in seeds]
        self.lstms = [
            keras.layers.LSTM(
                config.lstm_size,
                return_sequences=True,
                go_backwards=go_backwards,
                kernel_initializer=glorot(seed + 1),
                recurrent_initializer=orthogonal(seed=seed + 2),
                name=f"lstm_{index}",
            )
            for index, seed in enumerate(seeds)
        ]
        self.projections = [
            keras.layers.Dense(config.hidden_size, kernel_initializer=glorot(seed + 3), name=f"projection_{index}")
            for index, seed in enumerate(seeds)
        ]

    def build(self, input_shape):
        for lstm, projection in zip(self.lstms, self.projections, strict=True):
            lstm.build((None, None, self.config.hidden_size))
            projection.build((None, None, self.config.lstm_size))
        self.built = True

    def call(self, x, mask, training=False):
        outputs = []
        for dropout, lstm, projection in zip(self.dropouts, self.lstms, self.projections, strict=True):
            y = lstm(dropout(x, training=training), mask=mask)
            if self.go_backwards:  # Keras returns the outputs in the order of computation
                y = ops.flip(y, axis=1)
            y = projection(y)
            x = x + y if outputs else y
            outputs.append(x)
        return outputs


@keras.saving.register_keras_serializable("bert_keras")
class BiLM(ConfiguredModel):
    """A forward and a backward LSTM language model with common token embeddings and softmax.

    The softmax is tied: its weights are the token embeddings. Call with a dict of `input_ids` and `input_mask` int
    [B, T] (1 = token, 0 = padding, on the right). Returns a dict:
        `forward_lm_logits` float [B, T, V]: those at t predict the token at t + 1;
        `backward_lm_logits` float [B, T, V]: those at t predict the token at t - 1;
        `layer_outputs` list of n + 1 float [B, T, 2 H]: the features, forward and backward concatenated; the first is
            the token embedding, twice (section 3.2).

    Raises:
        InputError: the rows are packed. An LSTM would carry its state from one sequence into the next.
    """

    # Dropout before the softmax draws once for each direction.
    draws_per_call = 2

    def __init__(self, config: BiLMConfig, seed: int = 0, **kwargs):
        super().__init__(config, seed, **kwargs)
        initializer = keras.initializers.TruncatedNormal(stddev=config.initializer_range, seed=seed)
        self.token_embeddings = keras.layers.Embedding(
            config.vocab_size, config.hidden_size, embeddings_initializer=initializer, name="token_embeddings"
        )
        self.forward_lstm = DirectedLSTM(config, False, seed + SEEDS_PER_DIRECTION, name="forward")
        self.backward_lstm = DirectedLSTM(config, True, seed + 2 * SEEDS_PER_DIRECTION, name="backward")
        self.dropout = keras.layers.Dropout(config.dropout_prob, seed=seed + 1)

    def build(self, input_shape=None):
        for layer in (self.token_embeddings, self.forward_lstm, self.backward_lstm):
            layer.build(None)
        self.output_bias = self.add_weight(name="output_bias", shape=(self.config.vocab_size,), initializer="zeros")
        self.built = True

    def call(self, inputs, training=False):
        if "sequence_ids" in inputs:
            raise InputError("the rows are packed; a biLM needs one sequence per row: set examples.packing=false")
        x = self.token_embeddings(inputs["input_ids"])
        mask = ops.cast(inputs["input_mask"], "bool")
        forward = self.forward_lstm(x, mask, training=training)
        backward = self.backward_lstm(x, mask, training=training)
        pairs = zip([x, *forward], [x, *backward], strict=True)
        return {
            "forward_lm_logits": self._logits(forward[-1], training),
            "backward_lm_logits": self._logits(backward[-1], training),
            "layer_outputs": [ops.concatenate(pair, axis=-1) for pair in pairs],
        }

    def _logits(self, x, training):
        x = self.dropout(x, training=training)
        embeddings = ops.cast(self.token_embeddings.embeddings, x.dtype)
        return ops.matmul(x, ops.transpose(embeddings)) + ops.cast(self.output_bias, x.dtype)

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": BiLMConfig(**config["config"])})
