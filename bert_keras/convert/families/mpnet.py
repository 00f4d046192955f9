"""MPNet (arXiv 2004.09297): a RoBERTa's positions, no segments, and a bias by distance in all layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bert_keras.convert.families.family import Family, plain_but_for, roberta_task_heads
from bert_keras.convert.families.roberta import ROBERTA
from bert_keras.convert.weight_map import roberta_heads
from bert_keras.tokenizers.protocol import WORDPIECE

if TYPE_CHECKING:
    from bert_keras.models.config import BertConfig
    from bert_keras.tokenizers.protocol import Tokenizer

_BIAS = {"relative_attention": "bias", "relative_buckets": 32, "max_relative_distance": 128}
_ALWAYS: dict[str, Any] = {"type_vocab_size": 0, **_BIAS}


def _fields_there(
    family: Family, config: BertConfig, width: int, activation: str, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    fields = ROBERTA.fields_there(family, plain_but_for(config, _ALWAYS, family.title), width, activation, tokenizer)
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
    fields_here=lambda stored: {**stored, **_ALWAYS},
    fields_there=_fields_there,
    has_segments=False,
    masked_lm_only=True,
    task_heads=roberta_task_heads("mpnet.pooler.dense"),
)
