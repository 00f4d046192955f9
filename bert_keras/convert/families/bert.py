"""BERT (arXiv 1810.04805), and ELECTRA (arXiv 2003.10555): a discriminator or a generator."""

from typing import Any

from bert_keras.convert.families.family import Family, KerasHubClass, TaskHead, plain_fields, task_heads
from bert_keras.convert.weight_map import bert_heads, electra_heads
from bert_keras.tokenizers.protocol import BYTE_BPE, SENTENCEPIECE, WORDPIECE

BERT = Family(
    name="bert",
    title="BERT",
    algorithms=(WORDPIECE, SENTENCEPIECE),
    heads=bert_heads,
    prefix="bert.",
    head_prefixes=("cls.",),
    class_stem="Bert",
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    in_tf1=True,
    task_heads=task_heads(TaskHead(layer="bert.pooler.dense")),
    keras_hub=KerasHubClass("BertBackbone", "gelu_tanh", 1e-12),
)

# Of the head of choices, `ElectraSequenceSummary`.
_SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}


def _fields_here(stored: dict[str, Any]) -> dict[str, Any]:
    if "embedding_size" not in stored:
        raise ValueError("'embedding_size' is missing; the configuration of an ELECTRA needs it")
    return stored


ELECTRA = Family(
    name="electra",
    title="ELECTRA",
    algorithms=(WORDPIECE, BYTE_BPE, SENTENCEPIECE),
    heads=electra_heads,
    prefix="electra.",
    head_prefixes=("discriminator_predictions.", "generator_predictions.", "generator_lm_head."),
    class_stem="Electra",
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    in_tf1=True,
    keras_hub=KerasHubClass("ElectraBackbone", "gelu_tanh", 1e-12, "vocab_size", tokenizer="ElectraTokenizer"),
    exact_head=True,
    fields_here=_fields_here,
    fields_there=lambda family, config, width, activation: {
        **plain_fields(family, config, width, activation),
        "embedding_size": width,
    },
    task_heads=task_heads(
        TaskHead("classifier.out_proj", "classifier.dense", ("gelu",)),
        TaskHead("classifier", "sequence_summary.summary", ("gelu",), must_be=_SUMMARY),
    ),
)
