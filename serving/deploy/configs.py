"""TensorFlow Serving's configuration: text protos, built as messages and printed, and command-line flags."""

import textwrap
from collections.abc import Sequence
from typing import Any

from google.protobuf import text_format

from serving.deploy.protos import BatchingParameters, ModelServerConfig, MonitoringConfig, SSLConfig
from serving.deploy.sizing import Sizing

GRPC_PORT, REST_PORT = 8500, 8501
METRICS_PATH = "/monitoring/prometheus/metrics"
# Paths inside the container.
MODELS_PATH = "/models"
CONFIG_PATH = "/etc/tf-serving"
SSL_PATH = "/etc/tf-serving-ssl"

MODELS_FILE = "models.config"
BATCHING_FILE = "batching.config"
MONITORING_FILE = "monitoring.config"
SSL_FILE = "ssl.config"

STABLE, CANARY = "stable", "canary"

# A gRPC client keeps one connection, and thus one pod. Connections with a maximum age spread clients over new pods, and
# are gone from a pod before it stops (`kubernetes.DRAIN_SECONDS`). gRPC varies the age by a tenth.
CONNECTION_AGE_SECONDS = 30
_CONNECTION_GRACE_SECONDS = 10
_WIDTH = 110


def models_config(model_name: str, stable: int, canary: int) -> str:
    """ModelServerConfig: the versions to load and their labels.

    Args:
        model_name: name in requests, and of the model's folder below MODELS_PATH.
        canary: version with that label; equal to `stable` without a canary, so that requests for it are answered.
    """
    config = ModelServerConfig()
    model = config.model_config_list.config.add(
        name=model_name, base_path=f"{MODELS_PATH}/{model_name}", model_platform="tensorflow"
    )
    model.model_version_policy.specific.versions.extend(sorted({stable, canary}))
    model.version_labels[STABLE] = stable
    model.version_labels[CANARY] = canary
    why = "ModelServerConfig. Only these versions are loaded; requests without version or label get the highest."
    return _comment(why) + text_format.MessageToString(config)


def batching_config(sizing: Sizing) -> str:
    """BatchingParameters, with a comment on each value."""
    rows, threads, waiting = sizing.max_batch_size, sizing.batch_threads, sizing.max_enqueued_batches
    parameters: Sequence[tuple[str, Any, str]] = (
        ("max_batch_size", rows, f"As configured. Requests with more than {rows} rows are refused."),
        (
            "batch_timeout_micros",
            0,
            "On CPUs waiting only adds latency: while all threads are busy, requests accumulate anyway, and an idle "
            "thread can start at once.",
        ),
        (
            "num_batch_threads",
            threads,
            f"One per core ({threads}), as TensorFlow Serving's guide recommends for servers without accelerator.",
        ),
        (
            "max_enqueued_batches",
            waiting,
            "As many as threads, the guide's value for online serving: a request waits for at most one batch before "
            f"its own. Beyond {waiting} x {rows} queued rows, requests are refused (UNAVAILABLE) and can be retried.",
        ),
        (
            "allowed_batch_sizes",
            sizing.batch_sizes,
            "Batches are padded to the next of these sizes with copies of their first row; the copies' answers are "
            "dropped. Few sizes keep the kernels' caches warm; with these, less than a third of a batch is copies.",
        ),
        (
            "pad_variable_length_inputs",
            False,
            "Inputs are raw text, string[B], which needs no padding; the server would pad with the first element "
            "of the tensor, not with [PAD]. Token ids are padded and masked inside the graph.",
        ),
    )
    text = _comment("BatchingParameters, shared by all models of the server.")
    for name, value, why in parameters:
        text += "\n" + _comment(why) + _field(name, value)
    return text


def monitoring_config() -> str:
    """MonitoringConfig: Prometheus metrics on the REST port."""
    config = MonitoringConfig()
    config.prometheus_config.enable = True
    config.prometheus_config.path = METRICS_PATH
    return _comment(f"MonitoringConfig. Scrape http://HOST:{REST_PORT}{METRICS_PATH}") + text_format.MessageToString(
        config
    )


def ssl_template() -> str:
    """SSLConfig with placeholders for the PEM texts; the real one holds a private key and is not in the folder."""
    config = SSLConfig(server_key="SERVER_KEY", server_cert="SERVER_CERTIFICATE", custom_ca="CLIENT_CA")
    config.client_verify = True
    why = (
        "SSLConfig, a template: each placeholder stands for a whole PEM text. README.md tells how to fill it in. It "
        f"applies to gRPC only: the REST port, {REST_PORT}, is always plain HTTP."
    )
    return _comment(why) + text_format.MessageToString(config)


def config_files(model_name: str, stable: int, canary: int, sizing: Sizing) -> dict[str, str]:
    """Files in CONFIG_PATH, by name."""
    files = {MODELS_FILE: models_config(model_name, stable, canary), MONITORING_FILE: monitoring_config()}
    if sizing.batching:
        files[BATCHING_FILE] = batching_config(sizing)
    return files


def server_flags(sizing: Sizing, ssl: bool) -> list[str]:
    """Command-line flags of `tensorflow_model_server`."""
    channel = {
        "grpc.max_connection_age_ms": 1000 * CONNECTION_AGE_SECONDS,
        "grpc.max_connection_age_grace_ms": 1000 * _CONNECTION_GRACE_SECONDS,
    }
    flags: dict[str, object] = {
        "port": GRPC_PORT,
        "rest_api_port": REST_PORT,
        "model_config_file": f"{CONFIG_PATH}/{MODELS_FILE}",
        # Otherwise a server whose first configuration has labels does not start (tensorflow/serving#1608).
        "allow_version_labels_for_unavailable_models": "true",
        "monitoring_config_file": f"{CONFIG_PATH}/{MONITORING_FILE}",
        # A version that fails to load will fail again: by default the server retries for five minutes first.
        "max_num_load_retries": 0,
        # The default is the number of cores of the machine, regardless of the container's limit.
        "tensorflow_intra_op_parallelism": sizing.batch_threads,
        "tensorflow_inter_op_parallelism": sizing.batch_threads,
        "grpc_max_threads": sizing.request_threads,
        "rest_api_num_threads": sizing.request_threads,
        "grpc_channel_arguments": ",".join(f"{key}={value}" for key, value in channel.items()),
    }
    if sizing.batching:
        flags |= {"enable_batching": "true", "batching_parameters_file": f"{CONFIG_PATH}/{BATCHING_FILE}"}
    if ssl:
        flags["ssl_config_file"] = f"{SSL_PATH}/{SSL_FILE}"
    return [f"--{name}={value}" for name, value in flags.items()]


def ready_path(model_name: str) -> str:
    """Path that answers GET with 200 if and only if the stable version answers requests.

    The usual status of a model is also 200 while it loads and after it has failed to load.
    """
    return f"/v1/models/{model_name}/labels/{STABLE}/metadata"


def _field(name: str, value: Any) -> str:
    """One field of BatchingParameters as text; concatenated text protos parse as one message."""
    message = BatchingParameters()
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None:
        getattr(message, name).value = value
    elif field.label == field.LABEL_REPEATED:
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)
    return text_format.MessageToString(message)


def _comment(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")) + "\n"
