"""Reads TensorFlow Serving's batching parameters file (`--batching_parameters_file`).

    max_batch_size { value: 32 }
    batch_timeout_micros { value: 0 }
    allowed_batch_sizes: 8
    allowed_batch_sizes: 32

`BatchingParameters` is not among the protos of `tensorflow-serving-api`. Its fields, from tensorflow/serving's
`servables/tensorflow/session_bundle_config.proto`, are declared here in a separate pool.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

from serving import errors
from serving.scheduling.cores import cores

_FIELDS = """
    field { name: "max_batch_size" number: 1 type_name: ".google.protobuf.Int64Value" }
    field { name: "batch_timeout_micros" number: 2 type_name: ".google.protobuf.Int64Value" }
    field { name: "max_enqueued_batches" number: 3 type_name: ".google.protobuf.Int64Value" }
    field { name: "num_batch_threads" number: 4 type_name: ".google.protobuf.Int64Value" }
    field { name: "thread_pool_name" number: 5 type_name: ".google.protobuf.StringValue" }
    field { name: "allowed_batch_sizes" number: 6 type: TYPE_INT64 label: LABEL_REPEATED }
    field { name: "pad_variable_length_inputs" number: 7 type: TYPE_BOOL }
"""
# Not applicable here: there is one pool per model, and models pad their texts themselves.
_WITHOUT_EFFECT = ("thread_pool_name", "pad_variable_length_inputs")


@dataclass(frozen=True)
class BatchingSettings:
    """TensorFlow Serving's batching parameters, under their names.

    Attributes:
        num_batch_threads: calls computed at once; by default the number of cores of the process (`cores`).
        max_batch_size: maximum number of rows of a call.
        batch_timeout_micros: how long an incomplete call waits for more rows while a thread is free.
        max_enqueued_batches: once as many times `max_batch_size` rows of a signature wait, requests are
            RESOURCE_EXHAUSTED; None for no limit but that of the requests.
        allowed_batch_sizes: increasing sizes that calls are padded to, the last one `max_batch_size`; empty for no
            padding.
    """

    num_batch_threads: int = field(default_factory=cores)
    max_batch_size: int = 32
    batch_timeout_micros: int = 0
    max_enqueued_batches: int | None = None
    allowed_batch_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("num_batch_threads", "max_batch_size", "max_enqueued_batches"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.batch_timeout_micros < 0:
            raise ValueError(f"batch_timeout_micros is {self.batch_timeout_micros}; it must be at least 0")
        allowed = self.allowed_batch_sizes
        if list(allowed) != sorted({size for size in allowed if size > 0}):
            raise ValueError(f"allowed_batch_sizes is {allowed}; it must increase, from above 0")
        if allowed and allowed[-1] != self.max_batch_size:
            raise ValueError(f"allowed_batch_sizes ends with {allowed[-1]}, not with max_batch_size")


def read_batching_parameters(path: str | Path) -> BatchingSettings:
    """Settings from a text proto, with our defaults for missing fields; INVALID_ARGUMENT names the file."""
    try:
        proto = text_format.Parse(Path(path).read_text(), BatchingParameters())
        given: dict[str, Any] = {
            name: tuple(value) if name == "allowed_batch_sizes" else value.value
            for descriptor, value in proto.ListFields()
            if (name := descriptor.name) not in _WITHOUT_EFFECT
        }
        return dataclasses.replace(BatchingSettings(), **given)
    except OSError as error:
        raise errors.invalid(f"{path}: {errors.file_reason(error)}") from error
    except (ValueError, text_format.ParseError) as error:
        raise errors.invalid(f"{path}: {error}") from error


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="batching_parameters.proto",
        package="tensorflow.serving",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    text_format.Parse(_FIELDS, file.message_type.add(name="BatchingParameters"))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.serving.BatchingParameters"))


BatchingParameters = _message_class()
