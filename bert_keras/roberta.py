"""RoBERTa for masked-LM training (arXiv 1907.11692; FACTS D10). Shapes: B batch, T tokens, P predictions, V vocabulary.

The encoder is BERT's with one segment, the exact gelu, an epsilon of 1e-5 and no pooler; no sentence is predicted.
Tables of positions have 514 rows in fairseq's and Hugging Face's files: theirs count from 2, row 1 is of padding and
row 0 of nothing. Here positions count from 0, and the table has the 512 rows that are used.
"""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from bert_keras.backbone import SEEDS_PER_LAYER, BertBackbone
from bert_keras.config import BertConfig
from bert_keras.heads import MaskedLMHead

# The row of the first token's position in the files of others: padding's id, which is 1, plus 1.
FIRST_POSITION = 2


def roberta_config(num_hidden_layers: int, hidden_size: int, **other: int | float | str) -> BertConfig:
    """RoBERTa-base is (12, 768), RoBERTa-large (24, 1024); `other` are fields of `BertConfig`."""
    fields = {"vocab_size": 50265, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "gelu_erf", **other}
    return BertConfig.size(num_hidden_layers, hidden_size, **fields)


def positions_of_file(table: np.ndarray) -> np.ndarray:
    """A file's position embeddings [rows + 2, H] as they are here, [rows, H]."""
    return table[FIRST_POSITION:]


def positions_for_file(table: np.ndarray) -> np.ndarray:
    """Position embeddings [rows, H] as files have them, [rows + 2, H]: the rows of no token are 0."""
    return np.pad(table, ((FIRST_POSITION, 0), (0, 0)))


@keras.saving.register_keras_serializable("bert_keras")
class RobertaForMaskedLM(keras.Model):
    """The encoder with the masked-LM head: dense, gelu, layer normalisation, tied decoder and bias.

    Call with the backbone's inputs (`segment_ids` are 0) and `masked_lm_positions` int [B, P]. Returns the backbone's
    outputs and `mlm_logits` float [B, P, V]. Weights are drawn as BERT's; fairseq does not cut the normal off.
    """

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed
        self.backbone = BertBackbone(config, seed, has_pooler=False, name="bert")
        head_seed = seed + SEEDS_PER_LAYER * (config.num_hidden_layers + 1)
        self.mlm_head = MaskedLMHead(config, head_seed, name="predictions")

    def build(self, input_shape=None):
        self.backbone.build(None)
        self.mlm_head.build(None)
        self.built = True

    def call(self, inputs, training=False):
        outputs = self.backbone(inputs, training=training)
        table = self.backbone.embeddings.word_embeddings.embeddings
        mlm_logits = self.mlm_head(outputs["sequence_output"], inputs["masked_lm_positions"], table)
        return {**outputs, "mlm_logits": mlm_logits}

    def get_config(self):
        return {"config": dataclasses.asdict(self.config), "seed": self.seed, "name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": BertConfig(**config["config"])})
