"""Settings of the export."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """Settings of the export for serving.

    Attributes:
        precision: precision of the computation, independent of training: `float32`, or `mixed_bfloat16`, with matrix
            products and the SavedModel's weights in bfloat16. Answers and `model.weights.h5` are float32. The gate
            judges the exported model.
    """

    precision: Literal["float32", "mixed_bfloat16"] = "float32"
