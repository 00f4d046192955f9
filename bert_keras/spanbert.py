"""SpanBERT (arXiv 1907.10529): BERT without next-sentence prediction, with the span boundary objective (FACTS D9).

Shapes: B batch, T tokens, P predictions, H hidden, V vocabulary.
"""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from bert_keras.backbone import SEEDS_PER_LAYER, BertBackbone
from bert_keras.config import BertConfig
from bert_keras.heads import MaskedLMHead
from bert_keras.layers import activation, initializer, layer_norm
from bert_keras.objectives.span_boundary import SpanBoundaries, span_boundaries

# Of the place of a token in its span.
POSITION_EMBEDDING_SIZE = 200


class SpanBoundaryHead(keras.layers.Layer):
    """Predicts the tokens of a span from the outputs at its two boundaries (arXiv 1907.10529, section 3.2).

    Boundary outputs and the embedding of the place in the span, side by side; twice dense, activation and layer
    normalisation; then the product with the tied word embeddings plus a bias of its own.

    Call: `sequence_output` float [B, T, H], `boundaries`, `word_embeddings` float [V, H] -> logits float [B, P, V].
    """

    def __init__(self, config: BertConfig, max_pair_targets: int, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed
        self.position_embeddings = keras.layers.Embedding(
            max_pair_targets,
            POSITION_EMBEDDING_SIZE,
            embeddings_initializer=initializer(config, seed),
            name="position_embeddings",
        )
        self.dense = [
            keras.layers.Dense(
                config.hidden_size,
                activation=activation(config),
                kernel_initializer=initializer(config, seed + index),
                name=f"transform_{index}",
            )
            for index in (1, 2)
        ]
        self.layer_norms = [layer_norm(config, f"layer_norm_{index}") for index in (1, 2)]

    def build(self, input_shape):
        hidden = self.config.hidden_size
        self.position_embeddings.build(None)
        for dense, width in zip(self.dense, (2 * hidden + POSITION_EMBEDDING_SIZE, hidden), strict=True):
            dense.build((None, None, width))
        for norm in self.layer_norms:
            norm.build((None, None, hidden))
        self.output_bias = self.add_weight(name="output_bias", shape=(self.config.vocab_size,), initializer="zeros")
        self.built = True

    def call(self, sequence_output, boundaries: SpanBoundaries, word_embeddings):
        left = ops.take_along_axis(sequence_output, boundaries.left[:, :, None], axis=1)
        right = ops.take_along_axis(sequence_output, boundaries.right[:, :, None], axis=1)
        x = ops.concatenate([left, right, self.position_embeddings(boundaries.places)], axis=-1)  # [B, P, 2 H + 200]
        for dense, norm in zip(self.dense, self.layer_norms, strict=True):
            x = norm(dense(x))
        logits = ops.matmul(x, ops.transpose(ops.cast(word_embeddings, x.dtype)))
        return logits + ops.cast(self.output_bias, logits.dtype)


@keras.saving.register_keras_serializable("bert_keras")
class SpanBertForPreTraining(keras.Model):
    """BERT with the masked-LM head and the span boundary head.

    Call with the backbone's inputs, `masked_lm_positions` int [B, P] (ascending) and `masked_lm_weights` float [B, P]:
    the spans are the runs of neighbouring positions (`bert_keras.objectives.span_boundary`). Returns the backbone's
    outputs and
        `mlm_logits`, `sbo_logits` float [B, P, V]: of each masked token, from its own output and from its span's
            boundaries;
        `sbo_weights` float32 [B, P]: 0 for tokens that the boundaries do not predict.

    Args:
        config: the encoder.
        max_pair_targets: how many tokens of a span, from its first, its boundaries predict; 15 in the released models.
        seed: of the initial weights and of dropout.
    """

    def __init__(self, config: BertConfig, max_pair_targets: int, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.max_pair_targets, self.seed = config, max_pair_targets, seed
        self.backbone = BertBackbone(config, seed, name="bert")
        head_seed = seed + SEEDS_PER_LAYER * (config.num_hidden_layers + 1)
        self.mlm_head = MaskedLMHead(config, head_seed, name="predictions")
        self.sbo_head = SpanBoundaryHead(config, max_pair_targets, head_seed + 1, name="pair_target_predictions")

    def build(self, input_shape=None):
        self.backbone.build(None)
        self.mlm_head.build(None)
        self.sbo_head.build(None)
        self.built = True

    def call(self, inputs, training=False):
        outputs = self.backbone(inputs, training=training)
        sequence_output = outputs["sequence_output"]
        word_embeddings = self.backbone.embeddings.word_embeddings.embeddings
        boundaries = span_boundaries(inputs, self.max_pair_targets)
        return {
            **outputs,
            "mlm_logits": self.mlm_head(sequence_output, inputs["masked_lm_positions"], word_embeddings),
            "sbo_logits": self.sbo_head(sequence_output, boundaries, word_embeddings),
            "sbo_weights": boundaries.weights,
        }

    def get_config(self):
        return {
            "config": dataclasses.asdict(self.config),
            "max_pair_targets": self.max_pair_targets,
            "seed": self.seed,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": BertConfig(**config["config"])})
