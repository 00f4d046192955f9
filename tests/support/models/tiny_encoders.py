"""Configurations of tiny encoders, of BERT and of its relatives."""

import dataclasses
from typing import Any

from bert_keras.models.config import BertConfig

V, T = 40, 12
SHAPE = {"vocab_size": V, "max_position_embeddings": T, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TINY = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, **SHAPE)
LEFT_TO_RIGHT = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, causal=True, **SHAPE)
BILM = dataclasses.replace(TINY, encoder="bilm", intermediate_size=12)
# ModernBERT's differences, in a model with a global layer on each side of a local one.
MODERN = dataclasses.replace(
    TINY,
    num_hidden_layers=3,
    type_vocab_size=0,
    position_embedding="rotary",
    rotary_base=160.0,
    local_rotary_base=10.0,
    norm_place="pre",
    gated_feed_forward=True,
    use_bias=False,
    local_attention=4,
    global_attn_every_n_layers=2,
)
# Of MPNet and of DeBERTa: of 12 tokens some are farther from each other than all distances that are told apart.
MPNET_FIELDS: dict[str, Any] = {"type_vocab_size": 0, "relative_attention": "bias"}
DEBERTA_FIELDS: dict[str, Any] = {
    "type_vocab_size": 0,
    "position_embedding": "none",
    "relative_attention": "disentangled",
    "relative_buckets": 4,
    "max_relative_distance": 10,
}
MPNET = dataclasses.replace(TINY, **{**MPNET_FIELDS, "relative_buckets": 8, "max_relative_distance": 6})
DEBERTA = dataclasses.replace(TINY, **DEBERTA_FIELDS)
# ALBERT's: one layer, three times, under embeddings of another width.
ALBERT = dataclasses.replace(TINY, num_hidden_layers=3, embedding_width=8, shared_layers=True)


def roberta_config(num_hidden_layers, hidden_size, **other):
    """RoBERTa-base is (12, 768), RoBERTa-large (24, 1024); `other` are fields of `BertConfig`."""
    fields = {"vocab_size": 50265, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "gelu_erf", **other}
    return BertConfig.size(num_hidden_layers, hidden_size, **fields)
