"""DistilBERT (arXiv 1910.01108): BERT's layers without segments and without a pooler."""

from typing import Any

from bert_keras.convert.families.family import Family, TaskHead, check_plain, plain_but_for, task_heads
from bert_keras.convert.weight_map import bert_heads
from bert_keras.models.config import BertConfig
from bert_keras.tokenizers.protocol import WORDPIECE

# Name here -> name there, and the value of a file that lacks it (`DistilBertConfig`).
_FIELDS: dict[str, tuple[str, Any]] = {
    "vocab_size": ("vocab_size", 30522),
    "max_position_embeddings": ("max_position_embeddings", 512),
    "num_hidden_layers": ("n_layers", 6),
    "num_attention_heads": ("n_heads", 12),
    "hidden_size": ("dim", 768),
    "intermediate_size": ("hidden_dim", 3072),
    "hidden_dropout_prob": ("dropout", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1),
    "hidden_act": ("activation", "gelu"),
    "initializer_range": ("initializer_range", 0.02),
}
# What every DistilBERT is.
_ALWAYS = {"type_vocab_size": 0, "layer_norm_eps": 1e-12}


def _fields_there(family: Family, config: BertConfig, width: int, activation: str) -> dict[str, Any]:
    check_plain(plain_but_for(config, _ALWAYS, family.title), "Hugging Face's DistilBERT")
    return {there: getattr(config, here) for here, (there, _) in _FIELDS.items()} | {"activation": activation}


DISTILBERT = Family(
    name="distilbert",
    title="DistilBERT",
    algorithms=(WORDPIECE,),
    heads=bert_heads,
    prefix="distilbert.",
    head_prefixes=("vocab_",),
    class_stem="DistilBert",
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    renamed=(
        (r"^bert\.pooler", "pooler"),  # it has none
        (r"^bert\.encoder\.", "distilbert.transformer."),
        (r"^bert\.", "distilbert."),
        (r"attention\.self\.(query|key|value)", lambda match: f"attention.{match[1][0]}_lin"),
        (r"attention\.output\.dense", "attention.out_lin"),
        (r"attention\.output\.LayerNorm", "sa_layer_norm"),
        (r"intermediate\.dense", "ffn.lin1"),
        (r"output\.dense", "ffn.lin2"),
        (r"output\.LayerNorm", "output_layer_norm"),
        (r"^cls\.predictions\.transform\.dense", "vocab_transform"),
        (r"^cls\.predictions\.transform\.LayerNorm", "vocab_layer_norm"),
        (r"^cls\.predictions\.bias", "vocab_projector.bias"),
    ),
    fields_here=lambda stored: {here: stored.get(*there) for here, there in _FIELDS.items()} | _ALWAYS,
    fields_there=_fields_there,
    has_segments=False,
    masked_lm_only=True,
    task_heads=task_heads(TaskHead("classifier", "pre_classifier", ("relu",))),
)
