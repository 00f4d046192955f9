"""Names and layouts of each weight here and in other programs' files, for every family.

Worked example, a BERT of one 768-wide layer with 12 heads, the kernel of its queries:
    here           bert/layer_0/attention/query/kernel                         [in, out]
    TF1            bert/encoder/layer_0/attention/self/query/kernel            [in, out]
    Hugging Face   bert.encoder.layer.0.attention.self.query.weight            [out, in]
    keras-hub      transformer_layer_0/self_attention_layer/query/kernel       [in, heads, out / heads]
A RoBERTa's has the same name here, and `roberta.encoder. ...` in Hugging Face's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from bert_keras.models.config import BertConfig, Part

# A file has all weights of a part or none; only the encoder is required.
# All families have the same layers in encoder and embeddings; they differ in heads and names.
# "albert" has shared layers, "modernbert" any other `BertConfig.variations` but an ELECTRA's; "bert" has none. The
# "bilm" is known to no other program, so it has no table.
Family = Literal["bert", "roberta", "electra", "modernbert", "albert", "bilm"]
Format = Literal["tf1", "huggingface", "keras_hub"]

# Tensors that repeat another one of the file: output matrix and bias -> the tensor they are tied to.
TIED: dict[Family, dict[str, str]] = {
    "bert": {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    "roberta": {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    "electra": {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    "modernbert": {"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    "albert": {
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
}
# Prefixes of Hugging Face's heads; all other tensors have the family's prefix.
HEADS: dict[Family, tuple[str, ...]] = {
    "bert": ("cls.",),
    "roberta": ("lm_head.",),
    "electra": ("discriminator_predictions.", "generator_predictions.", "generator_lm_head."),
    "modernbert": ("head.", "decoder."),
    "albert": ("predictions.", "sop_classifier."),
}
# The prefix of all others.
PREFIXES: dict[Family, str] = {
    "bert": "bert.",
    "roberta": "roberta.",
    "electra": "electra.",
    "modernbert": "model.",
    "albert": "albert.",
}
# Rows of Hugging Face's position embeddings before the first position: row 1 is for padding, row 0 is unused
# (`bert_keras.models.roberta`).
UNUSED_ROWS: dict[Family, int] = {"bert": 0, "roberta": 2, "electra": 0, "modernbert": 0, "albert": 0}
# Names of tensors in other families, from those of a BERT's; a ModernBERT has one for query, key and value
# (`modernbert.split`).
_NAMES: dict[Family, tuple[tuple[str, str], ...]] = {
    "modernbert": (
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
    "albert": (
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
}


class Stored(NamedTuple):
    """The name of a weight in a format, and whether it is transposed there."""

    name: str
    transposed: bool = False


class Weight(NamedTuple):
    """One weight: its path in the model and shape here, and its names in the formats, None if a format lacks it.

    `keras_hub` may split an axis into heads, which keeps the order of the numbers. `unused_rows` precede it in Hugging
    Face's file only.
    """

    part: Part
    path: str
    shape: tuple[int, ...]
    tf1: Stored | None
    huggingface: Stored | None
    keras_hub: Stored | None
    unused_rows: int = 0

    def stored(self, format_: Format) -> Stored | None:
        return {"tf1": self.tf1, "huggingface": self.huggingface, "keras_hub": self.keras_hub}[format_]

    def stored_shape(self, format_: Format) -> tuple[int, ...]:
        """The shape of `from_file`'s argument."""
        stored = self.stored(format_)
        rows, *others = self.shape[::-1] if stored and stored.transposed else self.shape
        return (rows + (self.unused_rows if format_ == "huggingface" else 0), *others)

    def to_file(self, format_: Format, value: np.ndarray) -> np.ndarray:
        """Convert to the format's layout; unused rows are 0."""
        stored = self.stored(format_)
        value = value.T if stored and stored.transposed else value
        if format_ == "huggingface" and self.unused_rows:
            value = np.pad(value, ((self.unused_rows, 0), (0, 0)))
        return np.ascontiguousarray(value)

    def from_file(self, format_: Format, value: np.ndarray) -> np.ndarray:
        """Inverse of `to_file`."""
        stored = self.stored(format_)
        value = value[self.unused_rows :] if format_ == "huggingface" else value
        return value.T if stored and stored.transposed else value


def weights(config: BertConfig, family: Family = "bert", embedding_size: int | None = None) -> list[Weight]:
    """All weights of a family's models.

    Args:
        config: configuration of the encoder.
        embedding_size: E, the width of the embeddings; None: that of `config`.
    """
    embedding_size = config.of_width(embedding_size).hidden_size
    table = [*_embeddings(config, family, embedding_size), *_encoder(config, family)]
    table += _HEADS[family](config, embedding_size)
    if not config.use_bias:
        table = [w for w in table if w.part not in _WITHOUT_BIASES or not w.path.endswith(("/bias", "/beta"))]
    if family in _NAMES:
        return [_renamed(weight, family) for weight in table]
    return [weight._replace(tf1=None) for weight in table] if family == "roberta" else table


_WITHOUT_BIASES: tuple[Part, ...] = ("encoder", "masked-LM head")


def _renamed(weight: Weight, family: Family) -> Weight:
    """A weight of a BERT, or of its variations, under its name in Hugging Face's models of another family."""
    name = weight.huggingface.name if weight.huggingface else ""
    for pattern, new in _NAMES[family]:
        name = re.sub(pattern, new, name)
    known = weight.huggingface and name.startswith((PREFIXES[family], *HEADS[family]))
    huggingface = weight.huggingface._replace(name=name) if weight.huggingface and known else None
    return weight._replace(tf1=None, huggingface=huggingface, keras_hub=None)


def _dense(part: Part, path: str, names: _Names, inputs: int, outputs: int) -> list[Weight]:
    tf1, huggingface, keras_hub = names
    kernel = (
        _stored(tf1, "/kernel"),
        _stored(huggingface, ".weight", transposed=True),
        _stored(keras_hub, "/kernel"),
    )
    bias = _stored(tf1, "/bias"), _stored(huggingface, ".bias"), _stored(keras_hub, "/bias")
    return [
        Weight(part, f"{path}/kernel", (inputs, outputs), *kernel),
        Weight(part, f"{path}/bias", (outputs,), *bias),
    ]


def _norm(part: Part, path: str, names: _Names, width: int) -> list[Weight]:
    tf1, huggingface, keras_hub = names
    gamma = _stored(tf1, "/gamma"), _stored(huggingface, ".weight"), _stored(keras_hub, "/gamma")
    beta = _stored(tf1, "/beta"), _stored(huggingface, ".bias"), _stored(keras_hub, "/beta")
    return [Weight(part, f"{path}/gamma", (width,), *gamma), Weight(part, f"{path}/beta", (width,), *beta)]


# Names of a layer in TF1, Hugging Face and keras-hub; None: no such layer.
_Names = tuple[str | None, str | None, str | None]


def _stored(name: str | None, end: str = "", transposed: bool = False) -> Stored | None:
    return Stored(name + end, transposed) if name else None


def _embeddings(config: BertConfig, family: Family, width: int) -> Iterator[Weight]:
    family = "bert" if family in _NAMES else family
    positions = config.max_position_embeddings if config.position_embedding == "learned" else 0
    # keras-hub's RoBERTa has both tables in one layer, and no segments.
    inside = "embeddings/" if family == "roberta" else ""
    segments = None if family == "roberta" else "segment_embedding"
    for name, rows, keras_hub, unused_rows in (
        ("word_embeddings", config.vocab_size, f"{inside}token_embedding", 0),
        ("position_embeddings", positions, f"{inside}position_embedding", UNUSED_ROWS[family]),
        ("token_type_embeddings", config.type_vocab_size, segments, 0),
    ):
        if rows:
            yield Weight(
                "encoder",
                f"bert/embeddings/{name}/embeddings",
                (rows, width),
                Stored(f"{family}/embeddings/{name}"),
                Stored(f"{family}.embeddings.{name}.weight"),
                _stored(keras_hub, "/embeddings"),
                unused_rows,
            )
    at: _Names = f"{family}/embeddings/LayerNorm", f"{family}.embeddings.LayerNorm", "embeddings_layer_norm"
    yield from _norm("encoder", "bert/embeddings/layer_norm", at, width)
    if width != config.hidden_size:
        at = f"{family}/embeddings_project", f"{family}.embeddings_project", "embeddings_projection"
        yield from _dense("encoder", "bert/embeddings_project", at, width, config.hidden_size)


def _encoder(config: BertConfig, family: Family) -> Iterator[Weight]:
    hidden, inner = config.hidden_size, config.intermediate_size
    is_pre, family = config.norm_place == "pre", "bert" if family in _NAMES else family
    for i in range(config.weight_layers):
        here, tf1 = f"bert/layer_{i}", f"{family}/encoder/layer_{i}"
        hf, hub = f"{family}.encoder.layer.{i}", f"transformer_layer_{i}"
        attention = f"{hub}/self_attention_layer"
        for name in ("query", "key", "value"):
            at = f"{tf1}/attention/self/{name}", f"{hf}.attention.self.{name}", f"{attention}/{name}"
            yield from _dense("encoder", f"{here}/attention/{name}", at, hidden, hidden)
        at = f"{tf1}/attention/output/dense", f"{hf}.attention.output.dense", f"{attention}/attention_output"
        yield from _dense("encoder", f"{here}/attention/output", at, hidden, hidden)
        at = f"{tf1}/attention/output/LayerNorm", f"{hf}.attention.output.LayerNorm", f"{attention}_norm"
        if i > 0 or not is_pre or config.shared_layers:
            yield from _norm("encoder", f"{here}/attention_layer_norm", at, hidden)
        at = f"{tf1}/intermediate/dense", f"{hf}.intermediate.dense", f"{hub}/feedforward_intermediate_dense"
        yield from _dense("encoder", f"{here}/intermediate", at, hidden, inner * (1 + config.gated_feed_forward))
        at = f"{tf1}/output/dense", f"{hf}.output.dense", f"{hub}/feedforward_output_dense"
        yield from _dense("encoder", f"{here}/output", at, inner, hidden)
        at = f"{tf1}/output/LayerNorm", f"{hf}.output.LayerNorm", f"{hub}/feedforward_layer_norm"
        yield from _norm("encoder", f"{here}/output_layer_norm", at, hidden)
    if is_pre:
        yield from _norm("encoder", "bert/final_layer_norm", (None, "bert.final_norm", None), hidden)


def _masked_lm_head(
    config: BertConfig, width: int, dense: _Names, norm: _Names, bias: _Names, path: str = "predictions"
) -> Iterator[Weight]:
    yield from _dense("masked-LM head", f"{path}/transform", dense, config.hidden_size, width)
    yield from _norm("masked-LM head", f"{path}/layer_norm", norm, width)
    tf1, huggingface, keras_hub = map(_stored, bias)
    yield Weight("masked-LM head", f"{path}/output_bias", (config.vocab_size,), tf1, huggingface, keras_hub)


def _bert_heads(config: BertConfig, width: int) -> Iterator[Weight]:
    hidden = config.hidden_size
    at = "bert/pooler/dense", "bert.pooler.dense", "pooled_dense"
    yield from _dense("pooler", "bert/pooler", at, hidden, hidden)
    tf1, hf = "cls/predictions/transform", "cls.predictions.transform"
    # keras-hub's head is another function (`keras_hub`).
    yield from _masked_lm_head(
        config,
        width,
        (f"{tf1}/dense", f"{hf}.dense", None),
        (f"{tf1}/LayerNorm", f"{hf}.LayerNorm", None),
        ("cls/predictions/output_bias", "cls.predictions.bias", None),
    )
    # The only kernel that the original stores as [out, in] (run_pretraining.py, `get_next_sentence_output`).
    kernel = Stored("cls/seq_relationship/output_weights", True), Stored("cls.seq_relationship.weight", True)
    yield Weight("next-sentence head", "seq_relationship/kernel", (hidden, 2), *kernel, None)
    bias = Stored("cls/seq_relationship/output_bias"), Stored("cls.seq_relationship.bias")
    yield Weight("next-sentence head", "seq_relationship/bias", (2,), *bias, None)


def _roberta_heads(config: BertConfig, width: int) -> Iterator[Weight]:
    at = None, "roberta.pooler.dense", None
    yield from _dense("pooler", "bert/pooler", at, config.hidden_size, config.hidden_size)
    yield from _masked_lm_head(
        config,
        width,
        (None, "lm_head.dense", "mlm_head/intermediate_dense"),
        (None, "lm_head.layer_norm", "mlm_head/intermediate_layer_norm"),
        (None, "lm_head.bias", "mlm_head/output_bias"),
    )


def _electra_heads(config: BertConfig, width: int) -> Iterator[Weight]:
    hidden = config.hidden_size
    at: _Names = None, None, "pooled_dense"
    yield from _dense("pooler", "bert/pooler", at, hidden, hidden)
    yield from _masked_lm_head(
        config,
        width,
        ("generator_predictions/dense", "generator_predictions.dense", None),
        ("generator_predictions/LayerNorm", "generator_predictions.LayerNorm", None),
        ("generator_predictions/output_bias", "generator_lm_head.bias", None),
        "generator_predictions",
    )
    for here, tf1, hf, outputs in (("dense", "dense", "dense", hidden), ("output", "dense_1", "dense_prediction", 1)):
        at = f"discriminator_predictions/{tf1}", f"discriminator_predictions.{hf}", None
        yield from _dense("discriminator head", f"discriminator_predictions_{here}", at, hidden, outputs)


_HEADS = {"bert": _bert_heads, "roberta": _roberta_heads, "electra": _electra_heads}
_HEADS |= {"modernbert": _bert_heads, "albert": _bert_heads}
