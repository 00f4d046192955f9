"""TFRecord files and tf.Example messages without TensorFlow, which takes seconds and 450 MB in each worker.

Format of a record: length (uint64), checksum of the length, data, checksum of the data; little endian. A checksum is
CRC-32C, rotated and offset, so that the checksum of data that contains checksums stays meaningful.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

import google_crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8
# Size of length and checksums of a record.
FRAME_BYTES = _HEADER.size + _FOOTER.size


def checksum(data: bytes) -> int:
    """Masked CRC-32C of the data, or of the length, of a record."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame(record: bytes) -> bytes:
    """The record as stored in a file, with length and checksums."""
    length = struct.pack("<Q", len(record))
    return length + _FOOTER.pack(checksum(length)) + record + _FOOTER.pack(checksum(record))


def read_records(file: BinaryIO) -> Iterator[bytes]:
    """Records of an uncompressed TFRecord file, from its current position.

    ValueError: a record is truncated, or its checksum does not match; the message counts records from 0.
    """
    number = 0
    while header := file.read(_HEADER.size):
        if len(header) < _HEADER.size or checksum(header[:8]) != _HEADER.unpack(header)[1]:
            raise ValueError(f"record {number}: its length is damaged")
        length, _ = _HEADER.unpack(header)
        record = file.read(length)
        footer = file.read(_FOOTER.size)
        if len(record) < length or len(footer) < _FOOTER.size:
            raise ValueError(f"record {number}: is cut off")
        if checksum(record) != _FOOTER.unpack(footer)[0]:
            raise ValueError(f"record {number}: is damaged")
        yield record
        number += 1


def is_tfrecord(head: bytes) -> bool:
    """Return whether `head` is the beginning of a TFRecord file, judged by the checksum of the first length."""
    header = head[: _HEADER.size]
    return len(header) == _HEADER.size and checksum(header[:8]) == _HEADER.unpack(header)[1]


def _example_class():
    """tensorflow/core/example/{example,feature}.proto in a separate pool: TensorFlow may register its own copy."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bert_tfx/example.proto", package="tensorflow", syntax="proto3")

    def message(name: str, **fields: tuple) -> descriptor_pb2.DescriptorProto:
        made = file.message_type.add(name=name)
        for number, (field_name, (label, kind, *type_name)) in enumerate(fields.items(), 1):
            made.field.add(name=field_name, number=number, label=label, type=kind, type_name=(type_name or [None])[0])
        return made

    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    message("BytesList", value=(many, field.TYPE_BYTES))
    message("FloatList", value=(many, field.TYPE_FLOAT))
    message("Int64List", value=(many, field.TYPE_INT64))
    feature = message(
        "Feature",
        bytes_list=(one, field.TYPE_MESSAGE, ".tensorflow.BytesList"),
        float_list=(one, field.TYPE_MESSAGE, ".tensorflow.FloatList"),
        int64_list=(one, field.TYPE_MESSAGE, ".tensorflow.Int64List"),
    )
    feature.oneof_decl.add(name="kind")
    for member in feature.field:
        member.oneof_index = 0
    features = message("Features", feature=(many, field.TYPE_MESSAGE, ".tensorflow.Features.FeatureEntry"))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=one, type=field.TYPE_STRING)
    entry.field.add(name="value", number=2, label=one, type=field.TYPE_MESSAGE, type_name=".tensorflow.Feature")
    message("Example", features=(one, field.TYPE_MESSAGE, ".tensorflow.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


Example = _example_class()


def bytes_example(features: Mapping[str, Iterable[bytes]]) -> bytes:
    """Serialized tf.Example with bytes features; the same features give the same bytes."""
    example = Example()
    for name, values in features.items():
        example.features.feature[name].bytes_list.value.extend(values)
    return example.SerializeToString(deterministic=True)
