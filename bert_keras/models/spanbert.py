"""SpanBERT (arXiv 1907.10529): BERT without next-sentence prediction, with the span boundary objective.

Shapes: B batch, T tokens, P predictions, H hidden, V vocabulary.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from bert_keras.models.config import BertConfig
from bert_keras.models.layers import activation, add_bias, dense, initializer, layer_norm
from bert_keras.models.pretraining_heads import MaskedLanguageModel

# Width of the embedding of a token's place in its span.
POSITION_EMBEDDING_SIZE = 200


class SpanBoundaries(NamedTuple):
    """The boundaries of each masked token's span, and the token's place in it."""

    left: Any  # int [B, P], the position before the span
    right: Any  # int [B, P], the position after it
    places: Any  # int [B, P], from 0 to `max_pair_targets` - 1
    # float32 [B, P], `masked_lm_weights`, or 0.0 for tokens not predicted, whose other values are only guaranteed to be
    # in range.
    weights: Any


def span_boundaries(inputs, max_pair_targets: int) -> SpanBoundaries:
    """The spans of a batch, from its masked positions.

    Only the first `max_pair_targets` tokens of a span are predicted, and only if both boundaries are tokens of the
    text: the original masks a text before adding [CLS] and [SEP], so these are never boundaries. `inputs`: dict with
    `masked_lm_positions` int [B, P], ascending where `masked_lm_weights` float [B, P] is above 0; `input_mask` int [B,
    T] and, for packed rows, `sequence_ids` int [B, T]. `max_pair_targets`: 20 by default in the original, 15 in its
    released models.
    """
    positions = ops.cast(inputs["masked_lm_positions"], "int32")
    weights = ops.cast(inputs["masked_lm_weights"], "float32")
    # The number of each token's sequence in the row; 0 for padding and beyond the row.
    sequence = ops.pad(ops.cast(inputs.get("sequence_ids", inputs["input_mask"]), "int32"), [[0, 0], [2, 2]])
    last = ops.shape(inputs["input_mask"])[1] - 1

    def sequence_of(places):
        return ops.take_along_axis(sequence, places + 2, axis=1)

    sequence_here = sequence_of(positions)
    places, following = _places(positions)
    left, right = ops.clip(positions - places - 1, 0, last), ops.clip(positions + following + 1, 0, last)
    # The token beyond each boundary must belong to the sequence: so the boundary is not its [CLS] or last [SEP], and
    # a span does not continue into another sequence whose [CLS] is masked.
    beyond = ops.logical_and(
        ops.equal(sequence_of(positions - places - 2), sequence_here),
        ops.equal(sequence_of(positions + following + 2), sequence_here),
    )
    predicted = ops.logical_and(beyond, places < max_pair_targets)
    return SpanBoundaries(
        left, right, ops.minimum(places, max_pair_targets - 1), weights * ops.cast(predicted, "float32")
    )


def _places(positions):
    """Number of span tokens before and after each masked token; int [B, P] both."""
    slots = ops.arange(ops.shape(positions)[1], dtype="int32")
    # Within a span, positions and slots grow together: their difference is constant. After a gap it is larger; in
    # unused slots, whose position is 0, it is smaller than in any used one.
    spans = positions - slots
    same = ops.equal(spans[:, :, None], spans[:, None, :])  # [B, P, P]
    before = ops.logical_and(same, slots[None, :] < slots[:, None])
    after = ops.logical_and(same, slots[None, :] > slots[:, None])
    return ops.sum(ops.cast(before, "int32"), axis=-1), ops.sum(ops.cast(after, "int32"), axis=-1)


class SpanBoundaryHead(keras.layers.Layer):
    """Predict the tokens of a span from the outputs at its two boundaries (arXiv 1907.10529, section 3.2).

    Both boundary outputs and the embedding of the place in the span, concatenated; twice dense, activation and layer
    normalisation; then the product with the tied word embeddings plus a separate bias.

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
            dense(config, width, seed + index, f"transform_{index}", activation(config))
            for index, width in ((1, config.hidden_size), (2, config.of_width().hidden_size))
        ]
        self.layer_norms = [layer_norm(config, f"layer_norm_{index}") for index in (1, 2)]

    def build(self, input_shape):
        hidden = self.config.hidden_size
        self.position_embeddings.build(None)
        widths = (2 * hidden + POSITION_EMBEDDING_SIZE, hidden)
        for layer, norm, width in zip(self.dense, self.layer_norms, widths, strict=True):
            layer.build((None, None, width))
            norm.build((None, None, layer.units))
        self.output_bias = self.add_weight(name="output_bias", shape=(self.config.vocab_size,), initializer="zeros")

    def call(self, sequence_output, boundaries: SpanBoundaries, word_embeddings):
        left = ops.take_along_axis(sequence_output, boundaries.left[:, :, None], axis=1)
        right = ops.take_along_axis(sequence_output, boundaries.right[:, :, None], axis=1)
        x = ops.concatenate([left, right, self.position_embeddings(boundaries.places)], axis=-1)  # [B, P, 2 H + 200]
        for layer, norm in zip(self.dense, self.layer_norms, strict=True):
            x = norm(layer(x))
        logits = ops.matmul(x, ops.transpose(ops.cast(word_embeddings, x.dtype)))
        return add_bias(self, logits, self.output_bias)


class SpanBertForPreTraining(MaskedLanguageModel):
    """BERT with the masked-LM head and the span boundary head.

    Call with the backbone's inputs, `masked_lm_positions` int [B, P] (ascending) and `masked_lm_weights` float [B, P];
    spans are runs of adjacent positions (`bert_keras.objectives.span_boundary`). Returns the backbone's outputs and
        `mlm_logits`, `sbo_logits` float [B, P, V]: for each masked token, from its own output and from its span's
            boundaries;
        `sbo_weights` float32 [B, P]: 0 for tokens not predicted from the boundaries.

    `max_pair_targets`: maximum number of tokens of a span predicted from its boundaries; 15 in the released models.
    `seed`: seed of the initial weights and of dropout.
    """

    arguments = ("max_pair_targets",)

    def __init__(self, config: BertConfig, max_pair_targets: int, seed: int = 0, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.max_pair_targets = max_pair_targets
        self.sbo_head = SpanBoundaryHead(config, max_pair_targets, self.head_seed + 1, name="pair_target_predictions")

    def call(self, inputs, training=False):
        outputs = super().call(inputs, training=training)
        boundaries = span_boundaries(inputs, self.max_pair_targets)
        word_embeddings = self.backbone.embeddings.word_embeddings.embeddings
        sbo_logits = self.sbo_head(outputs["sequence_output"], boundaries, word_embeddings)
        return {**outputs, "sbo_logits": sbo_logits, "sbo_weights": boundaries.weights}
