"""ALBERT (arXiv 1909.11942): one layer for all, under embeddings of another width."""

import dataclasses
from typing import Any

from bert_keras.convert.families.family import Family, TaskHead, plain_fields, task_heads
from bert_keras.convert.weight_map import bert_heads
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.tokenizers.protocol import SENTENCEPIECE, WORDPIECE


def _fields_here(stored: dict[str, Any]) -> dict[str, Any]:
    width = stored.pop("embedding_size")
    return {**stored, "shared_layers": True, "embedding_width": width if width != stored.get("hidden_size") else 0}


def _fields_there(family: Family, config: BertConfig, width: int, activation: str) -> dict[str, Any]:
    if width == config.hidden_size:
        raise InputError(
            "Hugging Face's ALBERT always projects its embeddings, but model.embedding_width is model.hidden_size "
            "here; write the model with --to bert-tfx"
        )
    plain = dataclasses.replace(config, embedding_width=0, shared_layers=False)
    return {**plain_fields(family, plain, width, activation), "embedding_size": width}


ALBERT = Family(
    name="albert",
    title="ALBERT",
    algorithms=(WORDPIECE, SENTENCEPIECE),
    heads=bert_heads,
    prefix="albert.",
    head_prefixes=("predictions.", "sop_classifier."),
    class_stem="Albert",
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    renamed=(
        (r"bert\.embeddings_project", "albert.encoder.embedding_hidden_mapping_in"),
        (r"bert\.encoder\.layer\.0", "albert.encoder.albert_layer_groups.0.albert_layers.0"),
        (r"attention\.(?:self|output)\.", "attention."),
        (r"\.intermediate\.dense", ".ffn"),
        (r"\.output\.dense", ".ffn_output"),
        (r"\.output\.LayerNorm", ".full_layer_layer_norm"),
        (r"^bert\.pooler\.dense", "albert.pooler"),
        (r"^bert\.", "albert."),
        (r"cls\.predictions\.(?:transform\.)?", "predictions."),
        (r"cls\.seq_relationship", "sop_classifier.classifier"),
    ),
    must_be={"num_hidden_groups": 1, "inner_group_num": 1},  # all layers have the same weights
    # `AlbertConfig`
    defaults={
        "embedding_size": 128,
        "hidden_act": "gelu_new",
        "vocab_size": 30000,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    fields_here=_fields_here,
    fields_there=_fields_there,
    task_heads=task_heads(TaskHead(layer="albert.pooler")),
)
