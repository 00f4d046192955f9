"""Names and layouts of each weight here and in other programs' files, for every family.

Worked example, a BERT of one 768-wide layer with 12 heads, the kernel of its queries:
    here           bert/layer_0/attention/query/kernel                         [in, out]
    TF1            bert/encoder/layer_0/attention/self/query/kernel            [in, out]
    Hugging Face   bert.encoder.layer.0.attention.self.query.weight            [out, in]
    keras-hub      transformer_layer_0/self_attention_layer/query/kernel       [in, heads, out / heads]
A RoBERTa's has the same name here, and `roberta.encoder. ...` in Hugging Face's (`families`).
"""

import re
from collections.abc import Iterator

from bert_keras.convert.families.family import Family, TaskHead
from bert_keras.convert.families.weight import Stored, Weight
from bert_keras.models.config import BertConfig, Part

# Names of a layer in TF1, Hugging Face and keras-hub; None: no such layer.
_Names = tuple[str | None, str | None, str | None]


def weights(config: BertConfig, family: Family, embedding_size: int) -> list[Weight]:
    """All weights of a family's models with E, the width of the embeddings."""
    table = [*_embeddings(config, family, embedding_size), *_encoder(config, family)]
    table += family.heads(config, embedding_size)
    if not config.use_bias:
        table = [w for w in table if w.part not in _WITHOUT_BIASES or not w.path.endswith(("/bias", "/beta"))]
    if family.renamed:
        return [_renamed(weight, family) for weight in table]
    return table if family.in_tf1 else [weight._replace(tf1=None) for weight in table]


def with_task_head(table: list[Weight], head: TaskHead, config: BertConfig, outputs: int) -> list[Weight]:
    """All weights of a family's fine-tuned models, from `weights`.

    An encoder's pooler that the head does not read stays in the table, without a path, if the head has another layer.
    """
    hidden, rows = config.hidden_size, []
    if head.layer:
        rows += _dense("task head", "bert/pooler", (None, head.layer, None), hidden, hidden)
    if head.norm:
        rows += _norm("task head", "bert/pooler/norm", (None, head.norm, None), hidden)
        rows = rows if config.use_bias else [w for w in rows if not w.path.endswith(("/bias", "/beta"))]
    rows += _dense("task head", "classifier", (None, head.output, None), hidden, outputs)
    names = {weight.huggingface for weight in rows}
    others = (weight for weight in table if weight.huggingface not in names)
    return [*(w._replace(path="") if w.part == "pooler" and head.layer else w for w in others), *rows]


_WITHOUT_BIASES: tuple[Part, ...] = ("encoder", "masked-LM head")


def _renamed(weight: Weight, family: Family) -> Weight:
    """A weight of a BERT, or of its variations, under its name in Hugging Face's models of another family."""
    name = weight.huggingface.name if weight.huggingface else ""
    for pattern, new in family.renamed:
        name = re.sub(pattern, new, name)
    known = weight.huggingface and name.startswith((family.prefix, *family.head_prefixes))
    huggingface = weight.huggingface._replace(name=name) if weight.huggingface and known else None
    return weight._replace(tf1=None, huggingface=huggingface, keras_hub=None)


def _stem(family: Family) -> str:
    return "bert" if family.renamed else family.prefix.removesuffix(".") or family.name


def _dense(part: Part, path: str, names: _Names, inputs: int, outputs: int) -> list[Weight]:
    tf1, huggingface, keras_hub = names
    kernel = (_stored(tf1, "/kernel"), _stored(huggingface, ".weight", transposed=True), _stored(keras_hub, "/kernel"))
    bias = _stored(tf1, "/bias"), _stored(huggingface, ".bias"), _stored(keras_hub, "/bias")
    return [Weight(part, f"{path}/kernel", (inputs, outputs), *kernel), Weight(part, f"{path}/bias", (outputs,), *bias)]


def _norm(part: Part, path: str, names: _Names, width: int) -> list[Weight]:
    tf1, huggingface, keras_hub = names
    gamma = _stored(tf1, "/gamma"), _stored(huggingface, ".weight"), _stored(keras_hub, "/gamma")
    beta = _stored(tf1, "/beta"), _stored(huggingface, ".bias"), _stored(keras_hub, "/beta")
    return [Weight(part, f"{path}/gamma", (width,), *gamma), Weight(part, f"{path}/beta", (width,), *beta)]


def _stored(name: str | None, end: str = "", transposed: bool = False) -> Stored | None:
    return Stored(name + end, transposed) if name else None


def _embeddings(config: BertConfig, family: Family, width: int) -> Iterator[Weight]:
    stem = _stem(family)
    positions = config.max_position_embeddings if config.position_embedding == "learned" else 0
    # keras-hub's RoBERTa has both tables in one layer, and no segments.
    has_segments = not family.keras_hub or family.keras_hub.has_segments
    inside, segments = ("", "segment_embedding") if has_segments else ("embeddings/", None)
    for name, rows, keras_hub, unused_rows in (
        ("word_embeddings", config.vocab_size, f"{inside}token_embedding", 0),
        ("position_embeddings", positions, f"{inside}position_embedding", family.unused_rows),
        ("token_type_embeddings", config.type_vocab_size, segments, 0),
    ):
        if rows:
            there = Stored(f"{stem}/embeddings/{name}"), Stored(f"{stem}.embeddings.{name}.weight")
            hub, path = _stored(keras_hub, "/embeddings"), f"bert/embeddings/{name}/embeddings"
            yield Weight("encoder", path, (rows, width), *there, hub, unused_rows)
    if config.encoder == "static":
        return
    names: _Names = f"{stem}/embeddings/LayerNorm", f"{stem}.embeddings.LayerNorm", "embeddings_layer_norm"
    yield from _norm("encoder", "bert/embeddings/layer_norm", names, width)
    if width != config.hidden_size:
        names = f"{stem}/embeddings_project", f"{stem}.embeddings_project", "embeddings_projection"
        yield from _dense("encoder", "bert/embeddings_project", names, width, config.hidden_size)


def _encoder(config: BertConfig, family: Family) -> Iterator[Weight]:
    hidden, inner = config.hidden_size, config.intermediate_size
    is_pre, stem = config.norm_place == "pre", _stem(family)
    is_disentangled = config.relative_attention == "disentangled"
    if rows := config.distance_rows:
        here, stored = "bert/relative_positions", Stored(f"{stem}.encoder.rel_embeddings.weight")
        shape = rows, hidden if is_disentangled else config.num_attention_heads
        yield Weight("encoder", f"{here}/embeddings", shape, None, stored, None)
        if is_disentangled:
            yield from _norm("encoder", f"{here}/layer_norm", (None, f"{stem}.encoder.LayerNorm", None), hidden)
    for i in range(config.weight_layers):
        here, tf1 = f"bert/layer_{i}", f"{stem}/encoder/layer_{i}"
        hf, hub = f"{stem}.encoder.layer.{i}", f"transformer_layer_{i}"
        attention = f"{hub}/self_attention_layer"
        for name in ("query", "key", "value"):
            names: _Names = f"{tf1}/attention/self/{name}", f"{hf}.attention.self.{name}", f"{attention}/{name}"
            yield from _dense("encoder", f"{here}/attention/{name}", names, hidden, hidden)
        for name in ("query", "key") if is_disentangled and not config.shares_position_keys else ():
            names = None, f"{hf}.attention.self.pos_{name}_proj", None
            yield from _dense("encoder", f"{here}/attention/position_{name}", names, hidden, hidden)
        names = f"{tf1}/attention/output/dense", f"{hf}.attention.output.dense", f"{attention}/attention_output"
        yield from _dense("encoder", f"{here}/attention/output", names, hidden, hidden)
        names = f"{tf1}/attention/output/LayerNorm", f"{hf}.attention.output.LayerNorm", f"{attention}_norm"
        if i > 0 or not is_pre or config.shared_layers:
            yield from _norm("encoder", f"{here}/attention_layer_norm", names, hidden)
        names = f"{tf1}/intermediate/dense", f"{hf}.intermediate.dense", f"{hub}/feedforward_intermediate_dense"
        yield from _dense("encoder", f"{here}/intermediate", names, hidden, inner * (1 + config.gated_feed_forward))
        names = f"{tf1}/output/dense", f"{hf}.output.dense", f"{hub}/feedforward_output_dense"
        yield from _dense("encoder", f"{here}/output", names, inner, hidden)
        names = f"{tf1}/output/LayerNorm", f"{hf}.output.LayerNorm", f"{hub}/feedforward_layer_norm"
        yield from _norm("encoder", f"{here}/output_layer_norm", names, hidden)
    if is_pre:
        yield from _norm("encoder", "bert/final_layer_norm", (None, "bert.final_norm", None), hidden)


def _masked_lm_head(
    config: BertConfig, width: int, dense: _Names, norm: _Names, bias: _Names, path: str = "predictions"
) -> Iterator[Weight]:
    yield from _dense("masked-LM head", f"{path}/transform", dense, config.hidden_size, width)
    yield from _norm("masked-LM head", f"{path}/layer_norm", norm, width)
    tf1, huggingface, keras_hub = map(_stored, bias)
    yield Weight("masked-LM head", f"{path}/output_bias", (config.vocab_size,), tf1, huggingface, keras_hub)


def bert_heads(config: BertConfig, width: int) -> Iterator[Weight]:
    hidden = config.hidden_size
    names = "bert/pooler/dense", "bert.pooler.dense", "pooled_dense"
    yield from _dense("pooler", "bert/pooler", names, hidden, hidden)
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


def roberta_heads(config: BertConfig, width: int) -> Iterator[Weight]:
    names = None, "roberta.pooler.dense", None
    yield from _dense("pooler", "bert/pooler", names, config.hidden_size, config.hidden_size)
    yield from _masked_lm_head(
        config,
        width,
        (None, "lm_head.dense", "mlm_head/intermediate_dense"),
        (None, "lm_head.layer_norm", "mlm_head/intermediate_layer_norm"),
        (None, "lm_head.bias", "mlm_head/output_bias"),
    )


def electra_heads(config: BertConfig, width: int) -> Iterator[Weight]:
    hidden = config.hidden_size
    names: _Names = None, None, "pooled_dense"
    yield from _dense("pooler", "bert/pooler", names, hidden, hidden)
    yield from _masked_lm_head(
        config,
        width,
        ("generator_predictions/dense", "generator_predictions.dense", None),
        ("generator_predictions/LayerNorm", "generator_predictions.LayerNorm", None),
        ("generator_predictions/output_bias", "generator_lm_head.bias", None),
        "generator_predictions",
    )
    for here, tf1, hf, outputs in (("dense", "dense", "dense", hidden), ("output", "dense_1", "dense_prediction", 1)):
        names = f"discriminator_predictions/{tf1}", f"discriminator_predictions.{hf}", None
        yield from _dense("discriminator head", f"discriminator_predictions_{here}", names, hidden, outputs)
