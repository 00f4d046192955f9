"""The BERT encoder. Shapes: B batch, T tokens, H hidden."""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from bert_keras.config import BertConfig
from bert_keras.layers import MASKED_SCORE, BertEmbeddings, EncoderLayer, initializer

# Each layer draws its initial weights and dropout masks from its own range of seeds.
SEEDS_PER_LAYER = 16


class BertBackbone(keras.Model):
    """Embeddings, L encoder layers and the pooler (FACTS D4; paper section 3).

    Call with a dict of `input_ids`, `input_mask` (1 = token, 0 = padding) and `segment_ids`, each int [B, T],
    T <= `max_position_embeddings`. Of rows that several sequences share (`bert_keras.features`) also
    `sequence_ids` and `position_ids`, int [B, T], and `next_sentence_positions`, int [B, S]: then every sequence has
    the outputs that it has alone. Returns a dict:
        `sequence_output` float [B, T, H]: the last layer;
        `pooled_output` float [B, H]: dense + tanh of the first position; [B, S, H] of `next_sentence_positions`;
        `encoder_outputs` list of L float [B, T, H]: every layer's output (the embedding output is not one).
    """

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed
        self.embeddings = BertEmbeddings(config, seed, name="embeddings")
        self.encoder_layers = [
            EncoderLayer(config, seed + SEEDS_PER_LAYER * (index + 1), name=f"layer_{index}")
            for index in range(config.num_hidden_layers)
        ]
        self.pooler = keras.layers.Dense(
            config.hidden_size,
            activation="tanh",
            kernel_initializer=initializer(config, seed + SEEDS_PER_LAYER - 1),
            name="pooler",
        )

    def build(self, input_shape=None):
        self.embeddings.build(None)
        for layer in self.encoder_layers:
            layer.build(None)
        self.pooler.build((None, self.config.hidden_size))
        self.built = True

    def call(self, inputs, training=False):
        x = self.embeddings(inputs["input_ids"], inputs["segment_ids"], inputs.get("position_ids"), training=training)
        attended = ops.cast(inputs["input_mask"], "float32")[:, None, :]  # [B, 1 or T, T]
        if "sequence_ids" in inputs:
            sequence = inputs["sequence_ids"]
            attended = attended * ops.cast(ops.equal(sequence[:, :, None], sequence[:, None, :]), "float32")
        score_bias = (1.0 - attended[:, None]) * MASKED_SCORE
        outputs = []
        for layer in self.encoder_layers:
            x = layer(x, score_bias, training=training)
            outputs.append(x)
        first = x[:, 0]
        if "next_sentence_positions" in inputs:
            first = ops.take_along_axis(x, inputs["next_sentence_positions"][:, :, None], axis=1)
        return {"sequence_output": x, "pooled_output": self.pooler(first), "encoder_outputs": outputs}

    def get_config(self):
        return {"config": dataclasses.asdict(self.config), "seed": self.seed, "name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": BertConfig(**config["config"])})
