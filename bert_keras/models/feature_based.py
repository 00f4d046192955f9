"""BERT as fixed features for a BiLSTM (paper section 5.3, table 7). Shapes: B batch, T tokens, H hidden."""

from __future__ import annotations

import keras
from keras import ops

from bert_keras.models.backbone import SEEDS_PER_LAYER, BertBackbone, ConfiguredModel
from bert_keras.models.config import BertConfig
from bert_keras.models.layers import initializer

# Names of single layers; others by number: 0 = embeddings, 1 .. L = encoder layers, -1 = last.
SINGLE_LAYERS = {"embeddings": 0, "last": -1, "second_to_last": -2}
MIXES = ("sum_last_four", "sum_all", "weighted_sum_last_four", "weighted_sum_all", "concat_last_four")


class LayerMix(keras.layers.Layer):
    """Combine several layers' outputs: sum, sum with learned softmax weights (initially equal), or concatenation.

    Call: list of L float [B, T, H], as the backbone's `encoder_outputs` (without the embedding output)
    -> float [B, T, H], or [B, T, 4 H] for `concat_last_four`.
    """

    def __init__(self, mix: str, num_layers: int, **kwargs):
        super().__init__(**kwargs)
        if mix.endswith("last_four") and num_layers < 4:
            raise ValueError(f"features is {mix!r}; it needs 4 layers, and the encoder has {num_layers}")
        self.mix, self.count = mix, 4 if mix.endswith("last_four") else num_layers

    def build(self, input_shape):
        if self.mix.startswith("weighted"):
            self.layer_scores = self.add_weight(name="layer_scores", shape=(self.count,), initializer="zeros")
        self.built = True

    def call(self, encoder_outputs):
        chosen = encoder_outputs[-self.count :]
        if self.mix.startswith("concat"):
            return ops.concatenate(chosen, axis=-1)
        stacked = ops.stack(chosen, axis=-1)  # [B, T, H, layers]
        if self.mix.startswith("weighted"):
            stacked = stacked * ops.cast(ops.softmax(self.layer_scores), stacked.dtype)
        return ops.sum(stacked, axis=-1)


@keras.saving.register_keras_serializable("bert_keras")
class FeatureBasedTokenClassifier(ConfiguredModel):
    """A frozen encoder, two BiLSTM layers and one label per token, as in the paper's experiments on CoNLL-2003.

    The encoder has no gradients and no dropout, even in training. Padding is masked for the LSTMs.
    Call with the backbone's inputs, int [B, T] -> logits float [B, T, num_labels].

    Args:
        config: configuration of the encoder.
        num_labels: number of classes.
        features: input of the BiLSTM: a layer, by name (`SINGLE_LAYERS`) or number, or one of `MIXES`; the paper's
            best is `concat_last_four`.
        lstm_units: width of each direction; 768 in the paper.
        seed: seed of the initial weights.
        embedding_size: as in `BertBackbone`.
    """

    arguments = ("num_labels", "features", "lstm_units", "embedding_size")

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        features: str | int,
        lstm_units: int,
        seed: int = 0,
        embedding_size: int | None = None,
        **kwargs,
    ):
        super().__init__(config, seed, **kwargs)
        self.num_labels, self.features, self.lstm_units = num_labels, features, lstm_units
        self.layer = None if features in MIXES else _layer_number(features, config.num_hidden_layers)
        self.backbone = BertBackbone(config, seed, embedding_size=embedding_size, name="bert")
        self.embedding_size = self.backbone.embedding_size
        self.backbone.trainable = False
        if self.layer is None:
            self.layer_mix = LayerMix(str(features), config.num_hidden_layers, name="layer_mix")
        head_seed = seed + SEEDS_PER_LAYER * (config.num_hidden_layers + 1)
        self.lstms = [_bilstm(lstm_units, head_seed + 4 * index, f"bilstm_{index}") for index in range(2)]
        self.classifier = keras.layers.Dense(
            num_labels, kernel_initializer=initializer(config, head_seed + 8), name="classifier"
        )

    def build(self, input_shape=None):
        self.backbone.build(None)
        if self.layer is None:
            self.layer_mix.build(None)
        width = self.config.hidden_size * (4 if self.features == "concat_last_four" else 1)
        width = self.embedding_size if self.layer == 0 else width
        self.lstms[0].build((None, None, width))
        self.lstms[1].build((None, None, 2 * self.lstm_units))
        self.classifier.build((None, None, 2 * self.lstm_units))
        self.built = True

    def call(self, inputs, training=False):
        x = self.encode(inputs)
        # The first position always counts: cuDNN refuses a row of padding alone.
        first = ops.arange(ops.shape(x)[1])[None] == 0
        mask = ops.logical_or(ops.cast(inputs["input_mask"], "bool"), first)
        for lstm in self.lstms:
            x = lstm(x, mask=mask, training=training)  # [B, T, 2 lstm_units]
        return self.classifier(x)

    def encode(self, inputs):
        """The features, float [B, T, H] or [B, T, 4 H], without gradients."""
        if self.layer == 0:
            x = self.backbone.embeddings(inputs["input_ids"], inputs["segment_ids"], training=False)
            return ops.stop_gradient(x)
        outputs = self.backbone(inputs, training=False)["encoder_outputs"]
        outputs = [ops.stop_gradient(output) for output in outputs]
        return self.layer_mix(outputs) if self.layer is None else outputs[self.layer - 1]


def _layer_number(features: str | int, num_layers: int) -> int:
    """0 (embeddings) to L, from a name or from a number that may count from the end (-1 = last)."""
    number = SINGLE_LAYERS.get(features) if isinstance(features, str) else features
    if number is None or not -num_layers <= number <= num_layers:
        raise ValueError(
            f"features is {features!r}; it must be one of {(*SINGLE_LAYERS, *MIXES)} "
            f"or a layer's number, from {-num_layers} to {num_layers}"
        )
    return number if number >= 0 else num_layers + 1 + number


def _bilstm(units: int, seed: int, name: str) -> keras.layers.Bidirectional:
    def lstm(seed: int, **kwargs) -> keras.layers.LSTM:
        return keras.layers.LSTM(
            units,
            return_sequences=True,
            kernel_initializer=keras.initializers.GlorotUniform(seed),
            recurrent_initializer=keras.initializers.Orthogonal(seed=seed + 1),
            **kwargs,
        )

    # Explicit backward layer: Keras' own copy of the forward one would have its seed, so equal weights.
    forward, backward = lstm(seed, name="forward"), lstm(seed + 2, name="backward", go_backwards=True)
    return keras.layers.Bidirectional(forward, backward_layer=backward, name=name)
