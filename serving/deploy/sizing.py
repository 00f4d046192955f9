"""Threads, batches, queues and memory of one server, derived from its cores and its models."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.deploy.pushed import PushedVersion
from serving.deploy.settings import DeploySettings

# The server's code and TensorFlow's own tables, before a model is loaded.
_RUNTIME_MIB = 512
# A version's variables, and as much again: the graph's constants, and what folding them leaves.
_COPIES_OF_A_VERSION = 2
_MIB = 2**20
_ROUND_TO_MIB = 128
# Threads beyond those that predictions can hold, so that probes and metrics are always answered.
_SPARE_THREADS = 16


@dataclass(frozen=True)
class Sizing:
    """One server's.

    Attributes:
        batching: whether requests are batched.
        batch_threads: batches computed at once; also the threads of one op, and the ops of one graph at once.
        max_batch_size: rows.
        batch_sizes: those that a batch is filled up to.
        max_enqueued_batches: full batches that wait; what comes on top is refused with UNAVAILABLE.
        request_threads: requests held at once, gRPC and REST each.
        memory_mib: memory.
    """

    batching: bool
    batch_threads: int
    max_batch_size: int
    batch_sizes: tuple[int, ...]
    max_enqueued_batches: int
    request_threads: int
    memory_mib: int


def sizing_of(settings: DeploySettings, versions: Sequence[PushedVersion]) -> Sizing:
    """Of a server with `versions` loaded.

    A request waits in its thread until its batch is answered. So a batch fills only if there are as many threads as
    rows (TensorFlow Serving's own default, 4 a core, would end batches at 4 rows a core), and probes are answered only
    if requests cannot hold all of them: what runs and what may wait, of every version, and some to spare.
    """
    varying = [name for version in versions for name in version.varying_inputs]
    batching = settings.merge_requests if settings.merge_requests is not None else not varying
    threads, rows = settings.cpus, settings.max_batch_size
    held = threads * rows * (1 + len(versions)) if batching else 4 * threads
    return Sizing(
        batching=batching,
        batch_threads=threads,
        max_batch_size=rows,
        batch_sizes=batch_sizes(rows),
        max_enqueued_batches=threads,
        request_threads=held + _SPARE_THREADS,
        memory_mib=settings.memory_mib or _memory_mib(threads * rows, versions),
    )


def batch_sizes(most: int) -> tuple[int, ...]:
    """Powers of two and the numbers half-way between them, up to `most`, which is the last.

    >>> batch_sizes(32)
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    """
    steps = sorted({step for power in range(most.bit_length()) for step in (2**power, 3 * 2**power // 2)})
    return (*(step for step in steps if step < most), most)


def _memory_mib(rows: int, versions: Sequence[PushedVersion]) -> int:
    """Runtime, every version, and the activations of `rows` rows of the version that takes most.

    Of a MiniLM (6 layers of 384, 94 MiB) with 2 cores and 32 rows: 2,432. A Python process on TensorFlow 2.16 that held
    it and computed 2 batches of 32 texts of 512 tokens peaked at 2,428 MiB: 21 a row, where 27 are reckoned.
    """
    models = _COPIES_OF_A_VERSION * sum(version.size for version in versions)
    activations = rows * max(version.row_bytes for version in versions)
    mib = _RUNTIME_MIB + (models + activations) / _MIB
    return -int(-mib // _ROUND_TO_MIB) * _ROUND_TO_MIB
