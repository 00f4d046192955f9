"""Threads, batches, queues and memory of one server, derived from its cores and its models."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.deploy.pushed import PushedVersion
from serving.deploy.settings import DeploySettings

# Measured with `bert-tfx serve`, one version loaded and warmed up (docs/deploying.md, "Memory"): no measurement exceeds
# the derived memory. TensorFlow Serving was not measured; it has no Python, so it should need less.
_RUNTIME_MIB = 1408
_COPIES_OF_A_VERSION = 2
_MIB = 2**20
_ROUND_TO_MIB = 128
# Threads beyond those that predictions can occupy, so that probes and metrics are always answered.
_SPARE_THREADS = 16


@dataclass(frozen=True)
class Sizing:
    """Derived numbers of one server.

    Attributes:
        batch_threads: batches computed at once; also the intra-op and inter-op threads.
        batch_sizes: sizes that batches are padded to.
        max_enqueued_batches: capacity of the queue, in full batches; beyond it requests are UNAVAILABLE.
        request_threads: maximum number of concurrent requests, for gRPC and REST each.
    """

    batching: bool
    batch_threads: int
    max_batch_size: int
    batch_sizes: tuple[int, ...]
    max_enqueued_batches: int
    request_threads: int
    memory_mib: int


def sizing_of(settings: DeploySettings, versions: Sequence[PushedVersion]) -> Sizing:
    """Derive the sizing of a server with `versions` loaded.

    A request blocks its thread until its batch is answered. So batches fill up only with as many threads as rows
    (TensorFlow Serving's default of 4 per core would limit batches to 4 rows per core). Probes are answered only if
    requests cannot occupy all threads: those for running and queued rows of every version, plus spare ones.
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
    """Memory for the runtime, all versions, and the activations of `rows` rows of the largest version.

    For a MiniLM (6 layers of 384, 94 MiB) with 2 cores and 32 rows: 3,328.
    """
    models = _COPIES_OF_A_VERSION * sum(version.size for version in versions)
    activations = rows * max(version.row_bytes for version in versions)
    mib = _RUNTIME_MIB + (models + activations) / _MIB
    return -int(-mib // _ROUND_TO_MIB) * _ROUND_TO_MIB
