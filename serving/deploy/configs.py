"""TensorFlow Serving's configuration: text protos built as messages and printed, and the server's flags."""

import textwrap
from collections.abc import Sequence
from typing import Any

from google.protobuf import text_format

from serving.deploy.protos import BatchingParameters, ModelServerConfig, MonitoringConfig, SSLConfig
from serving.deploy.sizing import Sizing

GRPC_PORT, REST_PORT = 8500, 8501
METRICS_PATH = "/monitoring/prometheus/metrics"
# Inside the container.
MODELS_PATH = "/models"
CONFIG_PATH = "/etc/tf-serving"
SSL_PATH = "/etc/tf-serving-ssl"

MODELS_FILE = "models.config"
BATCHING_FILE = "batching.config"
MONITORING_FILE = "monitoring.config"
SSL_FILE = "ssl.config"

STABLE, CANARY = "stable", "canary"

# A gRPC client keeps one connection and so one pod. Connections that end now and then spread clients over new pods, and
# leave a pod that is to stop before it does (`kubernetes.DRAIN_SECONDS`). gRPC varies the age by a tenth.
CONNECTION_AGE_SECONDS = 30
_CONNECTION_GRACE_SECONDS = 10
_WIDTH = 110


def models_config(model_name: str, stable: int, canary: int) -> str:
    """ModelServerConfig: the versions that are loaded, and which of them a label asks for.

    Args:
        model_name: the name that clients ask for, and that of its folder below MODELS_PATH.
        stable: the version of that label.
        canary: the version of that label; that of `stable` where no canary runs, so that nobody asks in vain.
    """
    config = ModelServerConfig()
    model = config.model_config_list.config.add(
        name=model_name, base_path=f"{MODELS_PATH}/{model_name}", model_platform="tensorflow"
    )
    model.model_version_policy.specific.versions.extend(sorted({stable, canary}))
    model.version_labels[STABLE] = stable
    model.version_labels[CANARY] = canary
    why = "ModelServerConfig. Exactly these are loaded; whoever names neither version nor label gets the highest."
    return _comment(why) + text_format.MessageToString(config)


def batching_config(sizing: Sizing) -> str:
    """BatchingParameters, and where each value comes from."""
    rows, threads, waiting = sizing.max_batch_size, sizing.batch_threads, sizing.max_enqueued_batches
    parameters: Sequence[tuple[str, Any, str]] = (
        ("max_batch_size", rows, f"As given. A request of more than {rows} rows is refused."),
        (
            "batch_timeout_micros",
            0,
            "On CPUs a wait only adds to the latency: while all threads compute, requests gather by themselves, "
            "and while one is idle, it can as well begin.",
        ),
        (
            "num_batch_threads",
            threads,
            f"One a core ({threads}): as TensorFlow Serving's guide has it for a server without accelerator.",
        ),
        (
            "max_enqueued_batches",
            waiting,
            "As many as threads, the guide's value for online serving: a request waits for at most one batch before "
            f"its own. Beyond {waiting} x {rows} rows that wait, one is refused (UNAVAILABLE) and can go elsewhere.",
        ),
        (
            "allowed_batch_sizes",
            sizing.batch_sizes,
            "A batch is filled up to the next of these with copies of a request's first row, their answers dropped. "
            "Few sizes keep the kernels' caches warm; by these steps less than a third of a batch is copies.",
        ),
        (
            "pad_variable_length_inputs",
            False,
            "Inputs are raw text, string[B]: there is nothing to pad, and the server would pad with the first element "
            "of the tensor, not with [PAD]. Token ids are padded and masked inside the graph.",
        ),
    )
    text = _comment("BatchingParameters. Of all models of the server together.")
    for name, value, why in parameters:
        text += "\n" + _comment(why) + _field(name, value)
    return text


def monitoring_config() -> str:
    """MonitoringConfig: Prometheus' metrics on the REST port."""
    config = MonitoringConfig()
    config.prometheus_config.enable = True
    config.prometheus_config.path = METRICS_PATH
    return _comment(f"MonitoringConfig. Scrape http://HOST:{REST_PORT}{METRICS_PATH}") + text_format.MessageToString(
        config
    )


def ssl_template() -> str:
    """SSLConfig with a word for each PEM text; the real one holds a private key and is no file of the deployment."""
    config = SSLConfig(server_key="SERVER_KEY", server_cert="SERVER_CERTIFICATE", custom_ca="CLIENT_CA")
    config.client_verify = True
    why = (
        "SSLConfig, a template: each word stands for a whole PEM text. README.md says how to fill it in. It is of gRPC "
        f"alone: the REST port, {REST_PORT}, speaks plain HTTP whatever is set here."
    )
    return _comment(why) + text_format.MessageToString(config)


def config_files(model_name: str, stable: int, canary: int, sizing: Sizing) -> dict[str, str]:
    """What lies in CONFIG_PATH, by name."""
    files = {MODELS_FILE: models_config(model_name, stable, canary), MONITORING_FILE: monitoring_config()}
    if sizing.batching:
        files[BATCHING_FILE] = batching_config(sizing)
    return files


def server_flags(sizing: Sizing, ssl: bool) -> list[str]:
    """Those of `tensorflow_model_server`."""
    channel = {
        "grpc.max_connection_age_ms": 1000 * CONNECTION_AGE_SECONDS,
        "grpc.max_connection_age_grace_ms": 1000 * _CONNECTION_GRACE_SECONDS,
    }
    flags: dict[str, object] = {
        "port": GRPC_PORT,
        "rest_api_port": REST_PORT,
        "model_config_file": f"{CONFIG_PATH}/{MODELS_FILE}",
        # Or a server whose configuration has labels from the start does not start (tensorflow/serving#1608).
        "allow_version_labels_for_unavailable_models": "true",
        "monitoring_config_file": f"{CONFIG_PATH}/{MONITORING_FILE}",
        # A version that does not load now never will: by default the server tries for five minutes before it says so.
        "max_num_load_retries": 0,
        # By default as many as the machine has cores, whatever the container may use of them.
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
    """A GET of it is answered with 200 if and only if the stable version answers requests.

    The status of a model, which is usually asked for, is a 200 while it loads, and after it failed to.
    """
    return f"/v1/models/{model_name}/labels/{STABLE}/metadata"


def alive_path(model_name: str) -> str:
    """A GET of it is answered with 200 by every server that still answers."""
    return f"/v1/models/{model_name}"


def _field(name: str, value: Any) -> str:
    """One field of BatchingParameters, printed; texts of messages one after another are the text of all in one."""
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
