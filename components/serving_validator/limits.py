"""What a served model must keep to; no TFX."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ServingLimits:
    """What a model must keep to for it to be pushed: loaded by a server on this machine's CPU, asked by one client.

    The requests are those recorded beside the model, two short texts for each signature.

    Attributes:
        max_latency_ms: highest 95th percentile, over all answers of a signature, of the time to an answer, in
            milliseconds.
        max_memory_mb: most memory that the server's process may have had in use at a time, in MiB; some 500 of them
            are the server's own.
        max_load_seconds: longest time from the start of the server until the model is served.
        max_difference: how far from the trainer's a number may be, absolutely, and as a share of those above 1.
        repetitions: how often each request is sent.
    """

    max_latency_ms: float = 1000.0
    max_memory_mb: int = 8192
    max_load_seconds: float = 300.0
    max_difference: float = 1e-5
    repetitions: int = 20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"serving.{name} is {value}; it must be above 0")
