"""Limits for a served model; no TFX."""

import dataclasses
from typing import Annotated

from bert_keras.errors import POSITIVE, Positive, Settings

_PositiveInt = Annotated[int, POSITIVE]


@dataclasses.dataclass(frozen=True)
class ServingLimits(Settings, section="serving"):
    """Limits for a pushed model, when loaded by a server on this machine's CPU and called by one client.

    The requests are those recorded with the model, two short texts for each signature.

    Attributes:
        max_latency_ms: limit for the 95th percentile of the latency of each signature, in milliseconds.
        max_memory_mb: limit for the peak memory of the server's process, in MiB; the server itself takes about 500.
        max_load_seconds: limit for the time from the start of the server until the model is served.
        max_difference: limit for the difference of a number from the trainer's: absolute, and relative above 1.
        repetitions: how often each request is sent.
    """

    max_latency_ms: Positive = 1000.0
    max_memory_mb: _PositiveInt = 8192
    max_load_seconds: Positive = 300.0
    max_difference: Positive = 1e-5
    repetitions: _PositiveInt = 20
