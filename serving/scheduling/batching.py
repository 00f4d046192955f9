"""Dynamic batching: concurrent requests are computed together by TensorFlow's own batching op.

The op is that of `tf.nondifferentiable_batch_function`, over the scheduler of TensorFlow Serving's batching
(tensorflow/core/kernels/batching_util/shared_batch_scheduler.h). It is called as `tf.raw_ops.BatchFunction`, which has
two options that the decorator lacks: a name for the scheduler, so that all batches of a model share its threads, and
one for the queue.

    request -> bucket of its longest text -> queue of the bucket -> batch, once a batch thread is free -> rows

With `batch_timeout_micros` 0 a batch starts when a thread is free, so a single client never waits for others; requests
that arrive while all threads are busy form the next batch. Models tokenize in the graph and pad to the longest text of
a batch, so short texts wait in other queues than long ones.

Batching must not change the answer to a request:

- Rows are independent. `evaluate`, whose ELECTRA draws from one seed for a whole batch, is never batched.
- Inputs and outputs have the rows as their first dimension, and inputs no other unknown one.
- Outputs as wide as the widest row of the batch (`[B, T, H]` of encode, `[B, M, k]` of fill_mask) are cut to the
  request's own widest row, found by the padding of `tokens` or `words` (`_PADDED`); signatures without such an output
  are not batched.
- If a batch fails, each of its requests is computed again alone: an invalid text fails only its own request, with its
  own message.
"""

import bisect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from serving.errors import ServingError
from serving.protos import SignatureDef, TensorInfo, types_pb2

# Outputs that show where a row ends; beyond its end are "" or the vocabulary's padding token, which no text produces
# (bert_keras/saved_model/text_inputs.py, bert_keras/saved_model/).
_PADDED = ("tokens", "words")
_PADDING = (b"", b"[PAD]", b"<pad>")
NEVER_BATCHED = ("evaluate",)


def _cores() -> int:
    """Cores available to this process, if the system reports it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class BatchingSettings:
    """Settings of batching; the first five are TensorFlow Serving's batching parameters under their names.

    Attributes:
        num_batch_threads: batches computed at once for each version; by default the number of cores of the process.
            A batch uses all cores, but not all the time: two at once served a quarter more requests than one.
        max_batch_size: maximum number of rows.
        batch_timeout_micros: how long an incomplete batch waits for more rows while a thread is free.
        max_enqueued_batches: capacity of the queue of a signature's bucket; beyond it requests are
            RESOURCE_EXHAUSTED.
        allowed_batch_sizes: increasing sizes that batches are padded to, the last one `max_batch_size`; empty for no
            padding.
        length_buckets: text lengths in bytes; the longest row of a request selects its queue.
    """

    num_batch_threads: int = field(default_factory=_cores)
    max_batch_size: int = 32
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 64
    allowed_batch_sizes: tuple[int, ...] = ()
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
        signature: a signature that `can_batch`.
        part: the subgraph of the signature, a GraphDef (`serving.models.grappler`).
        graph: the model's graph; the batching ops are added to it.
    """

    def __init__(self, settings: BatchingSettings, name: str, signature: SignatureDef, part: Any, graph: Any):
        self._settings = settings
        self._inputs = sorted(signature.inputs)
        self._outputs = sorted(signature.outputs)
        self._signature = signature
        self._texts = [key for key, info in signature.inputs.items() if info.dtype == types_pb2.DT_STRING]
        # TensorFlow may put some rows of a request into one batch and the others into the next.
        self._splits = not any(map(is_varying, signature.outputs.values()))
        self._feeds = [signature.inputs[key].name for key in self._inputs]
        self._fetches = self._build(name, signature, part, graph)

    def callable_in(self, session: Any) -> Callable[..., list[np.ndarray]]:
        """The callable for `compute`, with the weights of a session."""
        return callable_of(session, [output.name for output in self._fetches], [self._bucket_feed, *self._feeds])

    def takes(self, inputs: Mapping[str, np.ndarray]) -> bool:
        """Whether all inputs have the same number of rows, and these fit in a batch."""
        rows = {array.shape[0] for array in inputs.values()}
        return len(rows) == 1 and 0 < max(rows) <= self._settings.max_batch_size

    def compute(
        self, call: Callable[..., list[np.ndarray]], inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray] | None:
        """Outputs by name; None if the batch failed, RESOURCE_EXHAUSTED if the queue is full."""
        import tensorflow as tf

        try:
            values = call(np.array(self._bucket(inputs), np.int32), *(inputs[key] for key in self._inputs))
        except tf.errors.UnavailableError as error:
            raise ServingError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error.message)) from error
        except (tf.errors.OpError, UnicodeDecodeError):  # for the latter see `errors.from_exception`
            return None
        return cut_to_own_width(self._signature, dict(zip(self._outputs, values, strict=True)))

    def _bucket(self, inputs: Mapping[str, np.ndarray]) -> int:
        if not self._texts:
            return 0
        lengths = zip(*(map(text_bytes, inputs[key]) for key in self._texts), strict=True)
        return bisect.bisect_left(self._settings.length_buckets, max(map(sum, lengths)))

    def _build(self, name: str, signature: SignatureDef, part: Any, graph: Any) -> list[Any]:
        """Outputs, with one executable for all buckets: a session takes a second to build each."""
        import tensorflow as tf

        fetches = [signature.outputs[key].name for key in self._outputs]
        with graph.as_default():
            placeholders = [graph.get_tensor_by_name(feed) for feed in self._feeds]

            # Variables and tables are found by name in the session's resources: nothing is captured. Not a
            # tf.function: its automatic control dependencies are wrong for a graph with conditions.
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
            # With splitting, the op's max_batch_size limits a request, and the last allowed size limits a batch.
            sizes = list(range(1, settings.max_batch_size + 1))
        return lambda: tf.raw_ops.BatchFunction(
            in_tensors=placeholders,
            captured_tensors=[],
            f=function,
            Tout=[output.dtype for output in function.outputs],
            num_batch_threads=settings.num_batch_threads,
            max_batch_size=settings.max_batch_size,
            batch_timeout_micros=settings.batch_timeout_micros,
            max_enqueued_batches=settings.max_enqueued_batches,
            allowed_batch_sizes=sizes,
            enable_large_batch_splitting=self._splits,
            # Batches with and without splitting need different options of the op, and thus different schedulers.
            shared_name="split" if self._splits else "whole",
            batching_queue=f"{name}/{number}",
        )


def callable_of(session: Any, fetches: Sequence[str], feeds: Sequence[str]) -> Callable[..., list[Any]]:
    """The callable from arrays for the tensors `feeds` to those of `fetches`.

    Operations run one after the other in the calling thread, as an encoder needs them. With `Session.make_callable`,
    which leads to `Session.run`, and with operations that change threads, one text took longer (bench_serving.md).
    The public method takes no `CallableOptions`.
    """
    from tensorflow.core.protobuf import config_pb2

    options = config_pb2.CallableOptions(feed=feeds, fetch=fetches)
    options.run_options.inter_op_thread_pool = -1
    return session._make_callable_from_options(options)


def can_batch(name: str, signature: SignatureDef) -> bool:
    """Whether the answer to a batch can be split into the answers that its requests would get alone."""
    if name in NEVER_BATCHED or not signature.inputs or not signature.outputs:
        return False
    inputs, outputs = ([sizes(info) for info in infos.values()] for infos in (signature.inputs, signature.outputs))
    if not all(shape[:1] == [-1] for shape in inputs + outputs):
        return False
    if any(-1 in shape[1:] for shape in inputs) or any(-1 in shape[2:] for shape in outputs):
        return False
    return not any(map(is_varying, signature.outputs.values())) or bool(marker(signature))


def marker(signature: SignatureDef) -> str:
    """The output that shows the width of a request's own rows; "" if there is none."""
    infos = signature.outputs
    strings = [key for key in _PADDED if key in infos and infos[key].dtype == types_pb2.DT_STRING]
    return next((key for key in strings if is_varying(infos[key])), "")


def sizes(info: TensorInfo) -> list[int]:
    """The shape, with -1 for unknown dimensions."""
    return [] if info.tensor_shape.unknown_rank else [dim.size for dim in info.tensor_shape.dim]


def is_varying(info: TensorInfo) -> bool:
    """Whether the size of a row differs between requests."""
    return -1 in sizes(info)[1:]


def cut_to_own_width(signature: SignatureDef, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of a request's rows, without the columns that only other rows of their batch need."""
    varying = [key for key, info in signature.outputs.items() if is_varying(info)]
    if not varying:
        return outputs
    width = own_width(outputs[marker(signature)])
    return {**outputs, **{key: outputs[key][:, :width] for key in varying}}


def own_width(marker: np.ndarray) -> int:
    """Number of columns of [B, width, ...] up to the last that is not padding in all rows."""
    padding = np.zeros(marker.shape, bool)
    for token in _PADDING:
        padding |= marker == token
    used = ~padding.all(axis=tuple(axis for axis in range(marker.ndim) if axis != 1))
    return int(used.nonzero()[0].max(initial=-1)) + 1


def text_bytes(row: Any) -> int:
    """Bytes of one row of texts, a string or an array of strings."""
    return len(row) if isinstance(row, bytes) else sum(map(len, row.flat))
