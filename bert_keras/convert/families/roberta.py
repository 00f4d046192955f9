"""RoBERTa (arXiv 1907.11692), and the families with its weights: XLM-RoBERTa (1911.02116), CamemBERT (1911.03894).

MPNet (arXiv 2004.09297) has its positions, no segments, and a bias by distance in all layers.
"""

import dataclasses
from typing import Any

from bert_keras.convert.families.family import Family, KerasHubClass, plain_but_for, plain_fields, roberta_task_heads
from bert_keras.convert.weight_map import roberta_heads
from bert_keras.models.config import BertConfig
from bert_keras.tokenizers.protocol import BYTE_BPE, SENTENCEPIECE, WORDPIECE

_ENDS = {"bos_token_id": "cls_id", "eos_token_id": "sep_id"}
ROBERTA = Family(
    name="roberta",
    title="RoBERTa",
    algorithms=(BYTE_BPE, WORDPIECE, SENTENCEPIECE),  # KLUE's has word pieces
    heads=roberta_heads,
    prefix="roberta.",
    head_prefixes=("lm_head.",),
    class_stem="Roberta",
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    unused_rows=2,
    keras_hub=KerasHubClass(
        "RobertaBackbone",
        "gelu_erf",
        1e-5,
        has_segments=False,
        tokenizer="RobertaTokenizer",
        masked_lm="RobertaMaskedLM",
    ),
    must_be={"pad_token_id": 1},  # positions start at the id of padding, plus 1
    exact_head=True,
    token_ids=_ENDS,
    has_segments=False,
    masked_lm_only=True,
    task_heads=roberta_task_heads("roberta.pooler.dense"),
)
XLM_ROBERTA = dataclasses.replace(
    ROBERTA, name="xlm-roberta", title="XLM-RoBERTa", class_stem="XLMRoberta", keras_hub=None
)
CAMEMBERT = dataclasses.replace(ROBERTA, name="camembert", title="CamemBERT", class_stem="Camembert", keras_hub=None)

_MPNET: dict[str, Any] = {
    **{"type_vocab_size": 0, "relative_attention": "bias"},
    **{"relative_buckets": 32, "max_relative_distance": 128},
}


def _mpnet_fields_there(family: Family, config: BertConfig, width: int, activation: str) -> dict[str, Any]:
    fields = plain_fields(family, plain_but_for(config, _MPNET, family.title), width, activation)
    del fields["type_vocab_size"]
    return fields


MPNET = Family(
    name="mpnet",
    title="MPNet",
    algorithms=(WORDPIECE,),
    heads=roberta_heads,
    prefix="mpnet.",
    head_prefixes=("lm_head.",),
    class_stem="MPNet",
    tied={"lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
    unused_rows=2,
    renamed=(
        (r"rel_embeddings", "relative_attention_bias"),
        (r"attention\.self\.(\w)\w+", r"attention.attn.\1"),
        (r"attention\.output\.dense", "attention.attn.o"),
        (r"attention\.output\.LayerNorm", "attention.LayerNorm"),
        (r"^(?:bert|roberta)\.", "mpnet."),
    ),
    # Positions as in RoBERTa; `transformers` computes 32 buckets, whatever the size of the table.
    must_be={"pad_token_id": 1, "relative_attention_num_buckets": 32},
    defaults={"vocab_size": 30527},  # `MPNetConfig`
    exact_head=True,
    fields_here=lambda stored: {**stored, **_MPNET},
    fields_there=_mpnet_fields_there,
    token_ids=_ENDS,
    has_segments=False,
    masked_lm_only=True,
    task_heads=roberta_task_heads("mpnet.pooler.dense"),
)
