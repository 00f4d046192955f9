"""The pre-training heads on the encoder. Shapes: B batch, T tokens, P predictions, H hidden, V vocabulary."""

import keras
from keras import ops

from bert_keras.models.backbone import SEEDS_PER_LAYER, BertBackbone, ConfiguredModel
from bert_keras.models.config import BertConfig
from bert_keras.models.layers import activation, add_bias, dense, layer_norm


class MaskedLMHead(keras.layers.Layer):
    """Dense, activation, layer normalisation, product with the tied word embeddings, bias (run_pretraining.py).

    Call: `sequence_output` float [B, T, H], `positions` int [B, P] or None for all, `word_embeddings` float [V, H]
    -> logits float [B, P, V] or [B, T, V], computed at `positions` only, in the width of the embeddings.
    """

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed
        width = config.of_width().hidden_size
        self.dense = dense(config, width, seed, "transform", activation(config), use_bias=config.use_bias)
        self.layer_norm = layer_norm(config, "layer_norm")

    def build(self, input_shape):
        self.dense.build(input_shape)
        self.layer_norm.build((None, None, self.dense.units))
        self.output_bias = self.add_weight(name="output_bias", shape=(self.config.vocab_size,), initializer="zeros")

    def call(self, sequence_output, positions, word_embeddings):
        if positions is not None:
            sequence_output = ops.take_along_axis(sequence_output, positions[:, :, None], axis=1)  # [B, P, H]
        transformed = self.layer_norm(self.dense(sequence_output))
        word_embeddings = ops.cast(word_embeddings, transformed.dtype)
        logits = ops.matmul(transformed, ops.transpose(word_embeddings))  # [B, P, V]
        return add_bias(self, logits, self.output_bias)


class MaskedLanguageModel(ConfiguredModel):
    """A `backbone` with the masked-LM head, `mlm_head`, tied to its word embeddings.

    Call with the backbone's inputs and `masked_lm_positions` int [B, P]; without them, every position is predicted.
    Returns the backbone's outputs and `mlm_logits` float [B, P or T, V].
    """

    has_pooler = True

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.backbone = BertBackbone(config, seed, has_pooler=self.has_pooler, name="bert")
        self.head_seed = seed + SEEDS_PER_LAYER * (config.num_hidden_layers + 1)
        self.mlm_head = MaskedLMHead(config, self.head_seed, name="predictions")

    def call(self, inputs, training=False):
        outputs = self.backbone(inputs, training=training)
        mlm_logits = self.mlm_logits(outputs["sequence_output"], inputs.get("masked_lm_positions"))
        return {**outputs, "mlm_logits": mlm_logits}

    def mlm_logits(self, sequence_output, positions):
        """Masked-LM logits [B, P, V] at `positions` int [B, P] of `sequence_output` [B, T, H]."""
        return self.mlm_head(sequence_output, positions, self.backbone.embeddings.word_embeddings.embeddings)


class BertForPreTraining(MaskedLanguageModel):
    """BERT with the masked-LM head and the next-sentence classifier.

    Also returns `nsp_logits` float [B, 2], for packed rows [B, S, 2]: 0 = B follows A, 1 = B is random.
    """

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.nsp_head = dense(config, 2, self.head_seed + 1, "seq_relationship")

    def call(self, inputs, training=False):
        outputs = super().call(inputs, training=training)
        return {**outputs, "nsp_logits": self.nsp_head(outputs["pooled_output"])}


class RobertaForMaskedLM(MaskedLanguageModel):
    """The encoder without a pooler, with the masked-LM head (arXiv 1907.11692; fairseq); `segment_ids` are 0.

    Its encoder is BERT's with one segment, the exact gelu and an epsilon of 1e-5. Position tables have 514 rows in
    fairseq's and Hugging Face's files: positions start at 2, row 1 is for padding, row 0 is unused. Here positions
    start at 0, and the table has the 512 rows that are used. Weights are drawn as BERT's; fairseq does not truncate the
    normal.
    """

    has_pooler = False
