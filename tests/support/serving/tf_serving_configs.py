"""Configuration messages of TensorFlow Serving that `tensorflow-serving-api` does not ship.

It ships ModelServerConfig; BatchingParameters, MonitoringConfig and SSLConfig are only compiled into the server. They
are declared here as data: names, numbers and types as in tensorflow/serving's
`servables/tensorflow/session_bundle_config.proto` (commit 03f8b6b), `config/monitoring_config.proto` (021efbd) and
`config/ssl_config.proto` (4bc435b). Here they are proto2, which prints explicitly set defaults (0, false); their text
format is the same. A separate pool avoids clashes with a future package that ships them.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Also registers ModelServerConfig, without importing TensorFlow.
from serving.protos import ModelServiceStub  # noqa: F401

_PACKAGE = "tensorflow.serving"
# In google.protobuf's package there.
_INT64_VALUE = f"{_PACKAGE}.Int64Value"
_STRING_VALUE = f"{_PACKAGE}.StringValue"
# Fields of each message in the order of their numbers, from 1; "repeated" precedes the type of a repeated field.
_MESSAGES = {
    "Int64Value": {"value": "int64"},
    "StringValue": {"value": "string"},
    "BatchingParameters": {
        "max_batch_size": _INT64_VALUE,
        "batch_timeout_micros": _INT64_VALUE,
        "max_enqueued_batches": _INT64_VALUE,
        "num_batch_threads": _INT64_VALUE,
        "thread_pool_name": _STRING_VALUE,
        "allowed_batch_sizes": "repeated int64",
        "pad_variable_length_inputs": "bool",
    },
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": f"{_PACKAGE}.PrometheusConfig"},
    "SSLConfig": {"server_key": "string", "server_cert": "string", "custom_ca": "string", "client_verify": "bool"},
}


def _declared() -> descriptor_pool.DescriptorPool:
    kind = descriptor_pb2.FieldDescriptorProto
    scalars = {"int64": kind.TYPE_INT64, "bool": kind.TYPE_BOOL, "string": kind.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="tensorflow_serving_configs.proto", package=_PACKAGE)
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, (name, declared) in enumerate(fields.items(), 1):
            repeated, type_name = declared.startswith("repeated "), declared.removeprefix("repeated ")
            field = message.field.add(name=name, number=number)
            field.label = kind.LABEL_REPEATED if repeated else kind.LABEL_OPTIONAL
            field.type = scalars.get(type_name, kind.TYPE_MESSAGE)
            if type_name not in scalars:
                field.type_name = f".{type_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _message(pool: descriptor_pool.DescriptorPool, name: str) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


_POOL = _declared()
BatchingParameters = _message(_POOL, "BatchingParameters")
MonitoringConfig = _message(_POOL, "MonitoringConfig")
SSLConfig = _message(_POOL, "SSLConfig")
ModelServerConfig = _message(descriptor_pool.Default(), "ModelServerConfig")
