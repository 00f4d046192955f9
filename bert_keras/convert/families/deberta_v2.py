"""DeBERTa-v2 and v3 (arXiv 2006.03654, 2111.09543): disentangled attention, no other positions.

A released discriminator's head for replaced tokens (`mask_predictions.`) adds the first token's vector to all: it is
another function than an ELECTRA's, and `transformers` has neither.
"""

from typing import Any

from bert_keras.convert.families.family import Family, TaskHead, plain_but_for, plain_fields, task_heads
from bert_keras.convert.weight_map import bert_heads, electra_heads
from bert_keras.models.config import BertConfig
from bert_keras.tokenizers.protocol import BYTE_BPE, SENTENCEPIECE, WORDPIECE

_ALWAYS: dict[str, Any] = {"position_embedding": "none", "relative_attention": "disentangled"}
_MUST_BE = {"relative_attention": True, "position_biased_input": False}
# Names here and there.
_FIELDS = {
    "relative_buckets": "position_buckets",
    "max_relative_distance": "max_relative_positions",
    "shares_position_keys": "share_att_key",
}


def _fields_here(stored: dict[str, Any]) -> dict[str, Any]:
    terms = stored["pos_att_type"] or []
    if sorted(terms.split("|") if isinstance(terms, str) else terms) != ["c2p", "p2c"]:
        raise ValueError(f"pos_att_type is {terms!r}; supported: 'p2c|c2p'")
    hidden = stored.get("hidden_size", BertConfig.hidden_size)
    size = hidden // stored.get("num_attention_heads", BertConfig.num_attention_heads)
    for name, value in (("attention_head_size", size), ("embedding_size", hidden)):
        if stored.get(name, value) != value:
            raise ValueError(f"{name} is {stored[name]!r}; supported: {value}")
    if stored["max_relative_positions"] < 1:
        stored["max_relative_positions"] = stored.get("max_position_embeddings", 512)
    return {**stored, **{here: stored[there] for here, there in _FIELDS.items()}, **_ALWAYS}


def _fields_there(family: Family, config: BertConfig, width: int, activation: str) -> dict[str, Any]:
    further = {here: getattr(config, here) for here in ("type_vocab_size", *_FIELDS)}
    plain = plain_but_for(config, {**further, **_ALWAYS}, family.title)
    fields = plain_fields(family, plain, width, activation)
    return {**fields, **{_FIELDS.get(here, here): value for here, value in further.items()}, "pos_att_type": "p2c|c2p"}


DEBERTA_V2 = Family(
    name="deberta-v2",
    title="DeBERTa-v2",
    algorithms=(WORDPIECE, BYTE_BPE, SENTENCEPIECE),
    heads=lambda config, width: (*bert_heads(config, width), *electra_heads(config, width)),
    prefix="deberta.",
    head_prefixes=("cls.predictions.",),
    class_stem="DebertaV2",
    tied={
        "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    renamed=(
        (r"attention\.self\.(query|key|value)", r"attention.self.\1_proj"),
        (r"^bert\.pooler", "pooler"),  # of fine-tuned models only
        (r"^bert\.", "deberta."),
    ),
    # Released models have no convolution, but for v2-xlarge and v2-xxlarge.
    must_be={**_MUST_BE, "norm_rel_ebd": "layer_norm", "conv_kernel_size": 0},
    # `DebertaV2Config`, and what its model takes for fields that it lacks.
    defaults={
        **{"vocab_size": 128100, "layer_norm_eps": 1e-7, "type_vocab_size": 0, "norm_rel_ebd": "none"},
        **{name: not value for name, value in _MUST_BE.items()},
        **{"position_buckets": -1, "max_relative_positions": -1, "share_att_key": False, "pos_att_type": None},
    },
    fields_here=_fields_here,
    fields_there=_fields_there,
    masked_lm_only=True,
    # Of the decoder of the pre-training, which read absolute positions.
    tensors_here=lambda tensors: (t for t in tensors if "embeddings.position_embeddings." not in t.name),
    task_heads=task_heads(TaskHead("classifier", "pooler.dense", ("gelu",), must_be={"pooler_hidden_act": "gelu"})),
)
