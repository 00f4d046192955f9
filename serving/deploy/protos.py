"""Configuration messages of TensorFlow Serving that `tensorflow-serving-api` does not ship.

It has ModelServerConfig; BatchingParameters, MonitoringConfig and SSLConfig are compiled into the server alone. They
are declared here as data: names, numbers and types as in tensorflow/serving's
`servables/tensorflow/session_bundle_config.proto` (commit 03f8b6b), `config/monitoring_config.proto` (021efbd) and
`config/ssl_config.proto` (4bc435b). As text they are the same; but these are of proto2, which prints what was set even
if it is the default, a 0 or a false. They live in a pool of their own, so that a package that ships them one day does
not clash.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Registers ModelServerConfig too, without importing TensorFlow.
from serving.protos import ModelServiceStub  # noqa: F401

_PACKAGE = "tensorflow.serving"
# google.protobuf's, there.
_INT64_VALUE = f"{_PACKAGE}.Int64Value"
_STRING_VALUE = f"{_PACKAGE}.StringValue"
# A message's fields, in the order of their numbers, from 1; "repeated" before a type repeats it.
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
