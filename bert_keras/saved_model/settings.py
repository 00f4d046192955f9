"""Settings of the export."""

from __future__ import annotations

import dataclasses
from typing import Literal

CONFIG_FILE = "bert_config.json"
# Optional field of `bert_config.json`: the settings of the signature `embed`.
EMBEDDING_FIELD = "embedding"
# Optional field of a pre-trained model's: tokens of a text that its signatures read, if fewer than it has positions.
LENGTH_FIELD = "max_seq_length"


@dataclasses.dataclass(frozen=True)
class EmbeddingSettings:
    """How a text's token vectors become one vector, in the signature `embed`.

    Attributes:
        pooling: `mean` of the vectors of all tokens ([CLS] and [SEP] among them), `cls`: the vector of [CLS]; with
            `none` there is no such signature.
        normalize: scale the vector to length 1, so that dot products are cosines.
        max_seq_length: tokens of a text that are read, [CLS] and [SEP] among them; 0: as in the other signatures.
    """

    pooling: Literal["none", "mean", "cls"] = "none"
    normalize: bool = True
    max_seq_length: int = 0

    def __post_init__(self) -> None:
        if self.max_seq_length < 0 or 0 < self.max_seq_length < 3:
            raise ValueError(
                f"export.embedding.max_seq_length is {self.max_seq_length}; it must be 0, or 3 and more, for a token "
                "between [CLS] and [SEP]"
            )


NO_EMBEDDING = EmbeddingSettings()


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """Settings of the export for serving.

    Attributes:
        precision: precision of the computation, independent of training: `float32`, or `mixed_bfloat16`, with matrix
            products and the SavedModel's weights in bfloat16. Answers and `model.weights.h5` are float32. The gate
            judges the exported model.
        embedding: the signature `embed`, of one vector a text.
        engine: what computes behind a server. With `onnxruntime` the folder also has `model.onnx`; the gate, the
            ServingValidator and `bert-tfx serve` then ask ONNX Runtime. For fine-tuned models.
        quantize: of `model.onnx`: `int8` has 8-bit matrix products (`bert_keras.convert.onnx_folder.write_graph`).
    """

    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    embedding: EmbeddingSettings = dataclasses.field(default_factory=EmbeddingSettings)
    engine: Literal["tensorflow", "onnxruntime"] = "tensorflow"
    quantize: Literal["none", "int8"] = "none"

    def __post_init__(self) -> None:
        if self.quantize != "none" and self.engine != "onnxruntime":
            raise ValueError(f"export.quantize={self.quantize} is for export.engine=onnxruntime; set both")
