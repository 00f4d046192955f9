"""ModernBERT (arXiv 2412.13663): fields of its `config.json`, and its tensor of query, key and value.

Released files have `global_attn_every_n_layers`, `global_rope_theta` and `local_rope_theta`; `transformers` 5 writes
`layer_types` and `rope_parameters` instead, and reads both.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bert_keras.convert.families.family import Family, TaskHead, plain_but_for, task_heads
from bert_keras.convert.families.weight import StoredTensor
from bert_keras.convert.weight_map import bert_heads
from bert_keras.models.config import BertConfig
from bert_keras.tokenizers.protocol import BYTE_BPE, SENTENCEPIECE, WORDPIECE

# What every ModernBERT is.
_ALWAYS: dict[str, Any] = {
    "type_vocab_size": 0,
    "position_embedding": "rotary",
    "norm_place": "pre",
    "gated_feed_forward": True,
    "use_bias": False,
}
# Name here -> name there, and the value of a file that lacks it (`ModernBertConfig`).
_FIELDS: dict[str, tuple[str, Any]] = {
    "hidden_act": ("hidden_activation", "gelu"),
    "layer_norm_eps": ("norm_eps", 1e-5),
    "hidden_dropout_prob": ("embedding_dropout", 0.0),
    "attention_probs_dropout_prob": ("attention_dropout", 0.0),
    "max_position_embeddings": ("max_position_embeddings", 8192),
    "rotary_base": ("global_rope_theta", 160_000.0),
    "local_rotary_base": ("local_rope_theta", 10_000.0),
    "local_attention": ("local_attention", 128),
    "global_attn_every_n_layers": ("global_attn_every_n_layers", 3),
}
_ROTARY = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
_TOKEN_IDS = {f"{name}_token_id": f"{name}_id" for name in ("cls", "sep", "pad")}
_TOKEN_IDS |= {"bos_token_id": "cls_id", "eos_token_id": "sep_id"}
# Of labels of tokens and spans, too; its activation is the encoder's.
_HEAD = TaskHead("classifier", "head.dense", ("norm", "norm_mean"), "head.norm")
_FUSED, _PARTS = "attn.Wqkv.", ("query.", "key.", "value.")


def _fields_here(stored: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `config.json` under the names of `BertConfig`. ValueError: no encoder here is the same."""
    stored = {**dict(_FIELDS.values()), **stored}
    for kind, base in _ROTARY.items():
        rotary = (stored.get("rope_parameters") or {}).get(kind) or {}
        if rotary.get("rope_type", "default") != "default":
            raise ValueError(f"rope_parameters.{kind}.rope_type is {rotary['rope_type']!r}; supported: 'default'")
        stored[base] = rotary.get("rope_theta", stored[base])
    if stored.get("classifier_activation", stored["hidden_activation"]) != stored["hidden_activation"]:
        raise ValueError("classifier_activation and hidden_activation differ; supported: one function for both")
    if layers := stored.get("layer_types"):
        is_global = [kind == "full_attention" for kind in layers]
        every = next((i for i in range(1, len(layers)) if is_global[i]), len(layers))
        if is_global != [i % every == 0 for i in range(len(layers))]:
            raise ValueError(f"layer_types is {layers}; supported: every n-th is 'full_attention', from the first")
        stored["global_attn_every_n_layers"] = every
    if stored["global_attn_every_n_layers"] == 1:
        stored |= {"local_attention": 0, "global_attn_every_n_layers": 3}
    return {**stored, **{here: stored[there] for here, (there, _) in _FIELDS.items()}, **_ALWAYS}


def _fields_there(family: Family, config: BertConfig, width: int, activation: str) -> dict[str, Any]:
    plain = plain_but_for(config, _ALWAYS, family.title).stored_fields()
    fields = {**plain, **{name: getattr(config, name) for name in _FIELDS}}
    del fields["causal"], fields["type_vocab_size"]
    if not config.local_attention:
        fields |= {"local_attention": 2, "global_attn_every_n_layers": 1}
    fields = {_FIELDS[name][0] if name in _FIELDS else name: value for name, value in fields.items()}
    return {
        **fields,
        **dict.fromkeys(_TOKEN_IDS),  # null without a tokenizer
        "hidden_activation": activation,
        "classifier_activation": activation,
        "mlp_dropout": config.hidden_dropout_prob,
    }


def split(tensors: Iterable[StoredTensor]) -> Iterator[StoredTensor]:
    """Tensors, those of query, key and value as three; of another shape unchanged, for the message about it."""
    for tensor in tensors:
        if _FUSED not in tensor.name or len(tensor.shape) != 2 or tensor.shape[0] % 3:
            yield tensor
            continue

        def read(number: int, tensor: StoredTensor = tensor) -> np.ndarray:
            return np.split(tensor.read(), 3)[number]

        for number, part in enumerate(_PARTS):
            yield dataclasses.replace(
                tensor,
                name=tensor.name.replace(_FUSED, _FUSED + part),
                shape=(tensor.shape[0] // 3, *tensor.shape[1:]),
                read=functools.partial(read, number),
            )


def joined(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors by name, those of query, key and value as one: the inverse of `split`."""
    whole: dict[str, list[np.ndarray]] = {}
    for name, value in tensors.items():
        for part in _PARTS:
            name = name.replace(_FUSED + part, _FUSED)
        whole.setdefault(name, []).append(value)
    return {name: np.concatenate(values) if len(values) > 1 else values[0] for name, values in whole.items()}


MODERNBERT = Family(
    name="modernbert",
    title="ModernBERT",
    algorithms=(WORDPIECE, BYTE_BPE, SENTENCEPIECE),
    heads=bert_heads,
    prefix="model.",
    head_prefixes=("head.", "decoder."),
    class_stem="ModernBert",
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    renamed=(
        (r"bert\.embeddings\.word_embeddings", "model.embeddings.tok_embeddings"),
        (r"bert\.embeddings\.LayerNorm", "model.embeddings.norm"),
        (r"bert\.encoder\.layer", "model.layers"),
        (r"attention\.self\.(\w+)", r"attn.Wqkv.\1"),
        (r"attention\.output\.dense", "attn.Wo"),
        (r"attention\.output\.LayerNorm", "attn_norm"),
        (r"intermediate\.dense", "mlp.Wi"),
        (r"output\.dense", "mlp.Wo"),
        (r"output\.LayerNorm", "mlp_norm"),
        (r"bert\.final_norm", "model.final_norm"),
        (r"cls\.predictions\.transform\.dense", "head.dense"),
        (r"cls\.predictions\.transform\.LayerNorm", "head.norm"),
        (r"cls\.predictions\.bias", "decoder.bias"),
    ),
    must_be={
        **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
        **dict.fromkeys(("decoder_bias", "tie_word_embeddings"), True),
        "rope_scaling": None,  # transformers merges it into `rope_parameters`
    },
    fields_here=_fields_here,
    fields_there=_fields_there,
    token_ids=_TOKEN_IDS,
    tensors_here=split,
    tensors_there=joined,
    task_heads=dict.fromkeys(task_heads(_HEAD), _HEAD),
    only_fast_tokenizer=True,
)
