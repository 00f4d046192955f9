"""Settings of the export."""

from __future__ import annotations

import dataclasses
from typing import Literal


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
    """

    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    embedding: EmbeddingSettings = dataclasses.field(default_factory=EmbeddingSettings)
