"""A frozen encoder as features for BiLSTMs: BERT's (paper section 5.3, table 7) or ELMo's (arXiv 1802.05365, eq. 1).

Shapes: B batch, T tokens, H hidden.
"""

import re

import keras
from keras import ops

from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import GlorotUniform, Orthogonal

# Names of single layers; others by number: 0 = embeddings, 1 .. L = encoder layers, -1 = last.
SINGLE_LAYERS = {"embeddings": 0, "last": -1, "second_to_last": -2}
MIXES = ("sum_last_four", "sum_all", "weighted_sum_last_four", "weighted_sum_all", "concat_last_four", "scalar_mix")


class LayerMix(keras.layers.Layer):
    """Combine several layers' outputs: sum, sum with learned softmax weights (initially equal), or concatenation.

    `scalar_mix`, ELMo's, also weighs the embedding output, and has a learned factor of the sum, initially 1.
    Call: list of L + 1 float [B, T, H], of embeddings and encoder -> float [B, T, H], or [B, T, 4 H] for
    `concat_last_four`.
    """

    def __init__(self, mix: str, num_layers: int, **kwargs):
        super().__init__(**kwargs)
        if mix.endswith("last_four") and num_layers < 4:
            raise ValueError(f"features is {mix!r}; it needs 4 layers, and the encoder has {num_layers}")
        self.mix = mix
        self.count = 4 if mix.endswith("last_four") else num_layers + (mix == "scalar_mix")

    def build(self, input_shape):
        if self.mix.startswith(("weighted", "scalar")):
            self.layer_scores = self.add_weight(name="layer_scores", shape=(self.count,), initializer="zeros")
        if self.mix == "scalar_mix":
            self.gamma = self.add_weight(name="gamma", shape=(), initializer="ones")

    def call(self, layers):
        chosen = layers[-self.count :]
        if self.mix.startswith("concat"):
            return ops.concatenate(chosen, axis=-1)
        stacked = ops.stack(chosen, axis=-1)  # [B, T, H, layers]
        if self.mix.startswith(("weighted", "scalar")):
            stacked = stacked * ops.cast(ops.softmax(self.layer_scores), stacked.dtype)
        total = ops.sum(stacked, axis=-1)
        return total * ops.cast(self.gamma, total.dtype) if self.mix == "scalar_mix" else total


class FeatureReader(keras.layers.Layer):
    """Chosen layers of an encoder, without gradients, and two BiLSTM layers on them, as in the paper's section 5.3.

    Padding is masked for the LSTMs. Call: the encoder's outputs, `input_mask` int [B, T] -> float [B, T, 2 units].
    `features`: input of the BiLSTM: a layer, by name (`SINGLE_LAYERS`) or number, or one of `MIXES`; the paper's best
    is `concat_last_four`, ELMo's `scalar_mix`. `units`: width of each direction; 768 in the paper.
    """

    def __init__(self, config: BertConfig, features: str, units: int, seed: int, **kwargs):
        super().__init__(**kwargs)
        self.layer = None if features in MIXES else _layer_number(features, config.num_hidden_layers)
        self.layer_mix = None
        if self.layer is None:
            self.layer_mix = LayerMix(features, config.num_hidden_layers, name="layer_mix")
        self.width, self.units = config.hidden_size * (4 if features == "concat_last_four" else 1), units
        self.lstms = [bilstm(units, seed + 4 * index, f"bilstm_{index}") for index in range(2)]

    def build(self, input_shape):
        if self.layer_mix is not None:
            self.layer_mix.build(None)
        self.lstms[0].build((None, None, self.width))
        self.lstms[1].build((None, None, 2 * self.units))

    def call(self, outputs, input_mask, training=False):
        x = self.features(outputs)
        # The first position always counts: cuDNN refuses a row of padding alone.
        first = ops.arange(ops.shape(x)[1])[None] == 0
        mask = ops.logical_or(ops.cast(input_mask, "bool"), first)
        for lstm in self.lstms:
            x = lstm(x, mask=mask, training=training)  # [B, T, 2 units]
        return x

    def features(self, outputs):
        """The features, float [B, T, H] or [B, T, 4 H]."""
        layers = [ops.stop_gradient(x) for x in (outputs["embedding_output"], *outputs["encoder_outputs"])]
        return layers[self.layer] if self.layer_mix is None else self.layer_mix(layers)


def _layer_number(features: str, num_layers: int) -> int:
    """0 (embeddings) to L, from a name or from a number that may count from the end (-1 = last)."""
    number = int(features) if re.fullmatch("-?[0-9]+", features) else SINGLE_LAYERS.get(features)
    if number is None or not -num_layers <= number <= num_layers:
        raise ValueError(
            f"features is {features!r}; it must be one of {(*SINGLE_LAYERS, *MIXES)} "
            f"or a layer's number, from {-num_layers} to {num_layers}"
        )
    return number if number >= 0 else num_layers + 1 + number


def bilstm(units: int, seed: int, name: str) -> keras.layers.Bidirectional:
    """An LSTM of so many units in each direction: float [B, T, H] -> float [B, T, 2 units]."""

    def lstm(seed: int, **kwargs) -> keras.layers.LSTM:
        return keras.layers.LSTM(
            units,
            return_sequences=True,
            kernel_initializer=GlorotUniform(seed),
            recurrent_initializer=Orthogonal(seed + 1),
            **kwargs,
        )

    # Explicit backward layer: Keras' own copy of the forward one would have its seed, so equal weights.
    forward, backward = lstm(seed, name="forward"), lstm(seed + 2, name="backward", go_backwards=True)
    return keras.layers.Bidirectional(forward, backward_layer=backward, name=name)
