"""Settings of the export."""

import dataclasses
from typing import Annotated, Any, Literal

from bert_keras.errors import Rule, Settings
from bert_keras.models.config import BertConfig
from bert_keras.tokenizers.protocol import BYTE_BPE

# Files of a pushed folder; the second weights are an ELECTRA's generator's, beside its discriminator's.
CONFIG_FILE, WEIGHTS_FILE, GENERATOR_FILE = "bert_config.json", "model.weights.h5", "generator.weights.h5"
# Fields of `bert_config.json` beside the encoder's; folders of older versions have no family.
FAMILY_FIELD = "family"
# Of an ensemble, the number of the served models; beside it are the weights of the first.
MEMBERS_FIELD = "members"
# Of weights that began in another program's folder: its `format` and `name`.
ORIGIN_FIELD = "origin"
# The settings of the signature `embed`, if there is one.
EMBEDDING_FIELD = "embedding"
# Of a pre-trained model: tokens of a text that its signatures read, if fewer than it has positions; the parts with
# random weights, if there are any.
LENGTH_FIELD, UNTRAINED_FIELD = "max_seq_length", "untrained_parts"


def family_of(config: BertConfig) -> str | None:
    """The family of an encoder with `BertConfig.variations`; None without: BERT, RoBERTa and ELECTRA have the same."""
    if config.encoder != "transformer":
        return config.encoder
    if config.relative_attention != "none":
        return "mpnet" if config.relative_attention == "bias" else "deberta-v2"
    return "albert" if config.shared_layers else "modernbert" if config.variations() else None


def family_of_bert(config: BertConfig, algorithm: str) -> str:
    """The family of a model that is no ELECTRA; a BERT with byte-level BPE is a RoBERTa."""
    return family_of(config) or ("roberta" if algorithm == BYTE_BPE else "bert")


_TEXT_LENGTH = Rule(lambda length: length == 0 or length >= 3, "0, or 3 and more, for a token between [CLS] and [SEP]")


@dataclasses.dataclass(frozen=True)
class EmbeddingSettings(Settings, section="export.embedding"):
    """Settings of the vector of a text, made of its tokens' vectors, in the signature `embed`.

    Attributes:
        pooling: `mean` of the vectors of all tokens ([CLS] and [SEP] among them), `cls`: the vector of [CLS]; with
            `none` there is no such signature.
        normalize: scale the vector to length 1, so that dot products are cosines.
        max_seq_length: tokens of a text that are read, [CLS] and [SEP] among them; 0: as in the other signatures.
        matryoshka_dimensions: numbers of dimensions that the model was trained for its vectors to be cut to
            (arXiv 2205.13147); the server warns who asks for others.
    """

    pooling: Literal["none", "mean", "cls"] = "none"
    normalize: bool = True
    max_seq_length: Annotated[int, _TEXT_LENGTH] = 0
    matryoshka_dimensions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # A list in JSON.
        object.__setattr__(self, "matryoshka_dimensions", tuple(self.matryoshka_dimensions))
        super().__post_init__()


NO_EMBEDDING = EmbeddingSettings()


def embedding_fields(embedding: EmbeddingSettings) -> dict[str, Any]:
    """The fields of the signature `embed` in `bert_config.json`; empty without the signature."""
    if embedding.pooling == "none":
        return {}
    return {EMBEDDING_FIELD: {name: value for name, value in dataclasses.asdict(embedding).items() if value != ()}}


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """Settings of the export for serving.

    Attributes:
        precision: precision of the computation, independent of training: `float32`, or `mixed_bfloat16`, with matrix
            products and the SavedModel's weights in bfloat16. Answers and `model.weights.h5` are float32. The gate
            judges the exported model.
        embedding: the signature `embed`, of one vector a text.
        engine: what computes behind a server. With `onnx` the folder also has `model.onnx`, and the gate, the
            ServingValidator and `bert-tfx serve` ask its engine. For fine-tuned models.
        quantize: of engine `onnx`: `int8` has 8-bit matrix products, calibrated on rows of the training split
            (`bert_keras.convert.onnx.int8`).
    """

    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    embedding: EmbeddingSettings = dataclasses.field(default_factory=EmbeddingSettings)
    engine: Literal["tensorflow", "onnx"] = "tensorflow"
    quantize: Literal["none", "int8"] = "none"

    def __post_init__(self) -> None:
        if self.quantize != "none" and self.engine != "onnx":
            raise ValueError(f"export.quantize={self.quantize} is for export.engine=onnx; set both")
