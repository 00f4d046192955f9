"""Dynamic batching: requests that wait at the same time are computed together, by TensorFlow's own batching op.

It is the op of `tf.nondifferentiable_batch_function`, over the scheduler that TensorFlow Serving's batching uses
(tensorflow/core/kernels/batching_util/shared_batch_scheduler.h). It is called here as `tf.raw_ops.BatchFunction`, which
has what the decorator leaves out: a name for the scheduler, so that all of a model's batches share its threads, and
one for the queue.

    request -> bucket of its longest text -> the bucket's queue -> a batch, as soon as a batch thread is free -> rows

With `batch_timeout_micros` 0 a batch starts once a thread is free, so a single client never waits for others; what
comes while all threads compute is the next batch. Models tokenise in the graph and pad to the longest text of a batch,
so short texts wait in other queues than long ones.

What is batched must be what the request alone would have got:

- Rows are independent. `evaluate`, whose ELECTRA draws from one seed for a whole batch, is never batched.
- Inputs and outputs have the rows as their first dimension, and inputs no other unknown one.
- Outputs as wide as the batch's widest row (`[B, T, H]` of encode, `[B, M, k]` of fill_mask) are cut to the request's
  own widest, which the padding of `tokens` or `words` tells (`_PADDED`); without such an output there is no batching.
- If a batch fails, each of its requests is computed again alone: one bad text fails its own request, with its own
  message.
"""

import bisect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from serving.errors import ServingError
from serving.protos import SignatureDef, TensorInfo, types_pb2

# Outputs that tell where a row ends, and what is beyond its end: "" or the vocabulary's padding token, which no text
# becomes (bert_keras/text_inputs.py, export.py, tasks/tagging_served.py).
_PADDED = ("tokens", "words")
_PADDING = (b"", b"[PAD]", b"<pad>")
NEVER_BATCHED = ("evaluate",)
# Requests of up to so many full batches are split; larger ones are computed alone.
_BATCHES_A_REQUEST = 8


def _cores() -> int:
    """Of this process, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class BatchingSettings:
    """How requests are batched; the first six are TensorFlow Serving's batching parameters, by their names.

    Attributes:
        num_batch_threads: batches that compute at once, of one version of a model; by default as many as the process
            has cores. A batch uses all cores, but not all the time: two of them served a quarter more than one.
        max_batch_size: most rows of a batch.
        batch_timeout_micros: how long a batch that is not full waits for more rows while a thread is free.
        max_enqueued_batches: of a signature's bucket; a request beyond is RESOURCE_EXHAUSTED.
        allowed_batch_sizes: sizes that batches are padded to, increasing, the last one `max_batch_size`; none: no
            padding.
        enable_large_batch_splitting: whether a request with more rows than a batch has is split. Never is one whose
            outputs are as wide as the batch's widest row: it is computed alone.
        length_buckets: bytes of text; the longest row of a request decides which queue it waits in.
    """

    num_batch_threads: int = field(default_factory=_cores)
    max_batch_size: int = 32
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 64
    allowed_batch_sizes: tuple[int, ...] = ()
    enable_large_batch_splitting: bool = True
    length_buckets: tuple[int, ...] = (64, 128, 256, 512)

    def __post_init__(self) -> None:
        for name in ("num_batch_threads", "max_batch_size", "max_enqueued_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("allowed_batch_sizes", "length_buckets"):
            sizes = getattr(self, name)
            if list(sizes) != sorted({size for size in sizes if size > 0}):
                raise ValueError(f"{name} is {sizes}; it must increase, from above 0")
        if self.allowed_batch_sizes and self.allowed_batch_sizes[-1] != self.max_batch_size:
            raise ValueError(f"allowed_batch_sizes ends with {self.allowed_batch_sizes[-1]}, not with max_batch_size")


class BatchedSignature:
    """One signature of a model's graph, batched.

    Args:
        settings: of the batches.
        name: the signature's.
        signature: one that `can_batch`.
        part: what of the model's graph computes it, a GraphDef (`serving.graph_parts`).
        graph: the model's, which gets the batching ops.
    """

    def __init__(self, settings: BatchingSettings, name: str, signature: SignatureDef, part: Any, graph: Any):
        self._settings = settings
        self._inputs = sorted(signature.inputs)
        self._outputs = sorted(signature.outputs)
        self._varying = [key for key, info in signature.outputs.items() if _is_varying(info)]
        self._marker = _marker(signature)
        self._texts = [key for key, info in signature.inputs.items() if info.dtype == types_pb2.DT_STRING]
        self._splits = settings.enable_large_batch_splitting and not self._varying
        self._max_rows = settings.max_batch_size * (_BATCHES_A_REQUEST if self._splits else 1)
        self._feeds = [signature.inputs[key].name for key in self._inputs]
        self._fetches = self._build(name, signature, part, graph)

    def callable_in(self, session: Any) -> Callable[..., list[np.ndarray]]:
        """What `compute` calls, for the weights of a session."""
        return session.make_callable(self._fetches, feed_list=[self._bucket_feed, *self._feeds])

    def takes(self, inputs: Mapping[str, np.ndarray]) -> bool:
        """Whether these inputs have equally many rows, and as many as fit."""
        rows = {array.shape[0] for array in inputs.values()}
        return len(rows) == 1 and 0 < max(rows) <= self._max_rows

    def compute(
        self, call: Callable[..., list[np.ndarray]], inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray] | None:
        """The outputs by name; None if the batch failed. RESOURCE_EXHAUSTED where the queue is full."""
        import tensorflow as tf

        try:
            values = call(self._bucket(inputs), *(inputs[key] for key in self._inputs))
        except tf.errors.UnavailableError as error:
            raise ServingError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error.message)) from error
        except tf.errors.OpError:
            return None
        outputs = dict(zip(self._outputs, values, strict=True))
        if self._varying:
            width = _own_width(outputs[self._marker])
            outputs |= {key: outputs[key][:, :width] for key in self._varying}
        return outputs

    def _bucket(self, inputs: Mapping[str, np.ndarray]) -> int:
        if not self._texts:
            return 0
        lengths = zip(*(map(_bytes, inputs[key]) for key in self._texts), strict=True)
        return bisect.bisect_left(self._settings.length_buckets, max(map(sum, lengths)))

    def _build(self, name: str, signature: SignatureDef, part: Any, graph: Any) -> list[Any]:
        """The outputs, of one executable for all buckets: each that a session builds takes a second."""
        import tensorflow as tf

        fetches = [signature.outputs[key].name for key in self._outputs]
        with graph.as_default():
            placeholders = [graph.get_tensor_by_name(feed) for feed in self._feeds]

            # Variables and tables are found by their names in the session's resources: nothing is captured. Not a
            # tf.function, whose automatic order of stateful ops is wrong for a part with conditions.
            def compute(*arguments: Any) -> Any:
                input_map = dict(zip(self._feeds, arguments, strict=True))
                return tf.graph_util.import_graph_def(part, input_map, return_elements=fetches, name="")

            specs = [tf.TensorSpec(placeholder.shape, placeholder.dtype) for placeholder in placeholders]
            function = tf.compat.v1.wrap_function(compute, specs)
            bucket = tf.compat.v1.placeholder(tf.int32, [], name="bucket")
            self._bucket_feed = bucket.name
            branches = [self._queue(name, number, function, placeholders) for number in range(self._buckets)]
            return list(tf.switch_case(bucket, branches))

    @property
    def _buckets(self) -> int:
        return len(self._settings.length_buckets) + 1

    def _queue(self, name: str, number: int, function: Any, placeholders: list[Any]) -> Callable[[], Any]:
        import tensorflow as tf

        settings = self._settings
        sizes = list(settings.allowed_batch_sizes)
        if self._splits and not sizes:
            # With splitting, the op's max_batch_size limits a request, and the last allowed size a batch.
            sizes = list(range(1, settings.max_batch_size + 1))
        return lambda: tf.raw_ops.BatchFunction(
            in_tensors=placeholders,
            captured_tensors=[],
            f=function,
            Tout=[output.dtype for output in function.outputs],
            num_batch_threads=settings.num_batch_threads,
            max_batch_size=self._max_rows,
            batch_timeout_micros=settings.batch_timeout_micros,
            max_enqueued_batches=settings.max_enqueued_batches,
            allowed_batch_sizes=sizes,
            enable_large_batch_splitting=self._splits,
            # Batches that are split and batches that are not differ in the op's options, so in its scheduler.
            shared_name="split" if self._splits else "whole",
            batching_queue=f"{name}/{number}",
        )


def can_batch(name: str, signature: SignatureDef) -> bool:
    """Whether what a batch answers can be told apart into what its requests alone would have got."""
    if name in NEVER_BATCHED or not signature.inputs or not signature.outputs:
        return False
    inputs, outputs = ([_sizes(info) for info in infos.values()] for infos in (signature.inputs, signature.outputs))
    if not all(sizes and sizes[0] == -1 for sizes in inputs + outputs):
        return False
    if any(-1 in sizes[1:] for sizes in inputs) or any(-1 in sizes[2:] for sizes in outputs):
        return False
    return not any(map(_is_varying, signature.outputs.values())) or bool(_marker(signature))


def _marker(signature: SignatureDef) -> str:
    """The output that tells how wide a request's own rows are; "" if there is none."""
    infos = signature.outputs
    strings = [key for key in _PADDED if key in infos and infos[key].dtype == types_pb2.DT_STRING]
    return next((key for key in strings if _is_varying(infos[key])), "")


def _sizes(info: TensorInfo) -> list[int]:
    return [] if info.tensor_shape.unknown_rank else [dim.size for dim in info.tensor_shape.dim]


def _is_varying(info: TensorInfo) -> bool:
    return -1 in _sizes(info)[1:]


def _own_width(marker: np.ndarray) -> int:
    """How many columns [B, width, ...] has up to the last one that is not padding in all rows."""
    padding = np.zeros(marker.shape, bool)
    for token in _PADDING:
        padding |= marker == token
    used = ~padding.all(axis=tuple(axis for axis in range(marker.ndim) if axis != 1))
    return int(used.nonzero()[0].max(initial=-1)) + 1


def _bytes(row: Any) -> int:
    return len(row) if isinstance(row, bytes) else sum(map(len, row.flat))
