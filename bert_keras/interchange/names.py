"""What each weight is called here, in the original's checkpoints and in Hugging Face's files; how it lies there.

Worked example, a model of one 768-wide layer, the kernel of its queries:
    here           bert/layer_0/attention/query/kernel                      [in, out]
    TF1            bert/encoder/layer_0/attention/self/query/kernel         [in, out]
    Hugging Face   bert.encoder.layer.0.attention.self.query.weight         [out, in]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from bert_keras.config import BertConfig

# A file has all weights of a part or none; only the encoder must be there.
Part = Literal["encoder", "pooler", "masked-LM head", "next-sentence head"]
PARTS: tuple[Part, ...] = ("encoder", "pooler", "masked-LM head", "next-sentence head")
Format = Literal["tf1", "huggingface"]

WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
MLM_BIAS = "cls.predictions.bias"
# Older files of Hugging Face hold these too: the output matrix and bias, tied to what they name.
TIED = {"cls.predictions.decoder.weight": WORD_EMBEDDINGS, "cls.predictions.decoder.bias": MLM_BIAS}
# A buffer, 0, 1, 2, ..., in files of Hugging Face before 4.31.
POSITION_IDS = "bert.embeddings.position_ids"


class Stored(NamedTuple):
    """The name of a weight in a format, and whether that has it transposed."""

    name: str
    transposed: bool = False


class Weight(NamedTuple):
    """One weight: its path below `BertForPreTraining` and shape here, and what the formats call it."""

    part: Part
    path: str
    shape: tuple[int, ...]
    tf1: Stored
    huggingface: Stored

    def stored(self, format_: Format) -> Stored:
        return self.tf1 if format_ == "tf1" else self.huggingface

    def stored_shape(self, format_: Format) -> tuple[int, ...]:
        return self.shape[::-1] if self.stored(format_).transposed else self.shape


def weights(config: BertConfig) -> list[Weight]:
    """Every weight of a `BertForPreTraining` of this configuration."""
    return [*_encoder(config), *_pooler_and_heads(config)]


def _table(name: str, rows: int, width: int) -> Weight:
    return Weight(
        "encoder",
        f"bert/embeddings/{name}/embeddings",
        (rows, width),
        Stored(f"bert/embeddings/{name}"),
        Stored(f"bert.embeddings.{name}.weight"),
    )


def _dense(part: Part, path: str, tf1: str, huggingface: str, inputs: int, outputs: int) -> list[Weight]:
    kernel = Stored(f"{huggingface}.weight", transposed=True)
    return [
        Weight(part, f"{path}/kernel", (inputs, outputs), Stored(f"{tf1}/kernel"), kernel),
        Weight(part, f"{path}/bias", (outputs,), Stored(f"{tf1}/bias"), Stored(f"{huggingface}.bias")),
    ]


def _norm(part: Part, path: str, tf1: str, huggingface: str, width: int) -> list[Weight]:
    tf1, huggingface = f"{tf1}/LayerNorm", f"{huggingface}.LayerNorm"
    return [
        Weight(part, f"{path}/gamma", (width,), Stored(f"{tf1}/gamma"), Stored(f"{huggingface}.weight")),
        Weight(part, f"{path}/beta", (width,), Stored(f"{tf1}/beta"), Stored(f"{huggingface}.bias")),
    ]


def _encoder(config: BertConfig) -> Iterator[Weight]:
    hidden, inner = config.hidden_size, config.intermediate_size
    yield _table("word_embeddings", config.vocab_size, hidden)
    yield _table("position_embeddings", config.max_position_embeddings, hidden)
    yield _table("token_type_embeddings", config.type_vocab_size, hidden)
    yield from _norm("encoder", "bert/embeddings/layer_norm", "bert/embeddings", "bert.embeddings", hidden)
    for i in range(config.num_hidden_layers):
        here, tf1, hf = f"bert/layer_{i}", f"bert/encoder/layer_{i}", f"bert.encoder.layer.{i}"
        for name in ("query", "key", "value"):
            at = f"{here}/attention/{name}", f"{tf1}/attention/self/{name}", f"{hf}.attention.self.{name}"
            yield from _dense("encoder", *at, hidden, hidden)
        at = f"{here}/attention/output", f"{tf1}/attention/output/dense", f"{hf}.attention.output.dense"
        yield from _dense("encoder", *at, hidden, hidden)
        at = f"{here}/attention_layer_norm", f"{tf1}/attention/output", f"{hf}.attention.output"
        yield from _norm("encoder", *at, hidden)
        at = f"{here}/intermediate", f"{tf1}/intermediate/dense", f"{hf}.intermediate.dense"
        yield from _dense("encoder", *at, hidden, inner)
        yield from _dense("encoder", f"{here}/output", f"{tf1}/output/dense", f"{hf}.output.dense", inner, hidden)
        yield from _norm("encoder", f"{here}/output_layer_norm", f"{tf1}/output", f"{hf}.output", hidden)


def _pooler_and_heads(config: BertConfig) -> Iterator[Weight]:
    hidden = config.hidden_size
    yield from _dense("pooler", "bert/pooler", "bert/pooler/dense", "bert.pooler.dense", hidden, hidden)

    tf1, hf = "cls/predictions/transform", "cls.predictions.transform"
    yield from _dense("masked-LM head", "predictions/transform", f"{tf1}/dense", f"{hf}.dense", hidden, hidden)
    yield from _norm("masked-LM head", "predictions/layer_norm", tf1, hf, hidden)
    bias = Stored("cls/predictions/output_bias"), Stored(MLM_BIAS)
    yield Weight("masked-LM head", "predictions/output_bias", (config.vocab_size,), *bias)

    # The one kernel that the original, too, has as [out, in] (FACTS D4).
    kernel = Stored("cls/seq_relationship/output_weights", True), Stored("cls.seq_relationship.weight", True)
    yield Weight("next-sentence head", "seq_relationship/kernel", (hidden, 2), *kernel)
    bias = Stored("cls/seq_relationship/output_bias"), Stored("cls.seq_relationship.bias")
    yield Weight("next-sentence head", "seq_relationship/bias", (2,), *bias)
