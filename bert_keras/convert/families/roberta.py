"""RoBERTa (arXiv 1907.11692), and the families with its weights: XLM-RoBERTa (1911.02116), CamemBERT (1911.03894)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bert_keras.convert.families.family import Family, KerasHubClass, plain_fields
from bert_keras.convert.weight_map import roberta_heads
from bert_keras.tokenizers.protocol import BYTE_BPE, SENTENCEPIECE, WORDPIECE

if TYPE_CHECKING:
    from bert_keras.models.config import BertConfig
    from bert_keras.tokenizers.protocol import Tokenizer


def _fields_there(
    family: Family, config: BertConfig, width: int, activation: str, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    ends = {"bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id} if tokenizer else {}
    return {**plain_fields(family, config, width, activation, tokenizer), **ends}


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
    fields_there=_fields_there,
    has_segments=False,
    masked_lm_only=True,
)
XLM_ROBERTA = dataclasses.replace(
    ROBERTA, name="xlm-roberta", title="XLM-RoBERTa", class_stem="XLMRoberta", keras_hub=None
)
CAMEMBERT = dataclasses.replace(ROBERTA, name="camembert", title="CamemBERT", class_stem="Camembert", keras_hub=None)
