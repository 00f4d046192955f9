"""TensorFlow Serving's configuration: each text proto parses as its message; sizes are derived from the versions."""

import doctest
import json
import re
import subprocess

import pytest
import trustme
from google.protobuf import text_format

from serving.deploy import sizing
from serving.deploy.settings import DeploySettings
from serving.deploy.sizing import read_version
from tests.support.serving.tf_serving_configs import BatchingParameters, MonitoringConfig, SSLConfig

MIB = 2**20
# Flags of tensorflow/serving's model_servers/main.cc that a deployment may need; the server exits at unknown ones.
FLAGS = """
    port rest_api_port rest_api_num_threads rest_api_timeout_in_ms enable_batching batching_parameters_file
    allow_version_labels_for_unavailable_models model_config_file model_config_file_poll_wait_seconds num_load_threads
    num_unload_threads max_num_load_retries load_retry_interval_micros file_system_poll_wait_seconds
    tensorflow_session_parallelism tensorflow_intra_op_parallelism tensorflow_inter_op_parallelism ssl_config_file
    grpc_channel_arguments grpc_max_threads enable_model_warmup monitoring_config_file
"""


def models_of(text):
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

    (model,) = text_format.Parse(text, ModelServerConfig()).model_config_list.config
    return model


def test_models_config_loads_the_labelled_versions(make):
    model = models_of(make(stable=7, canary=8).files["config/models.config"])
    assert (model.name, model.base_path, model.model_platform) == ("bert", "/models/bert", "tensorflow")
    assert list(model.model_version_policy.specific.versions) == [7, 8]
    assert dict(model.version_labels) == {"stable": 7, "canary": 8}


def test_without_a_canary_its_label_is_the_stable_version(make):
    model = models_of(make(stable=None).files["config/models.config"])
    assert list(model.model_version_policy.specific.versions) == [9]
    assert dict(model.version_labels) == {"stable": 9, "canary": 9}


def test_beside_a_canary_the_newest_other_version_is_stable(make):
    assert make(stable=None, canary=9).deployment.stable == 8


def test_batching_parameters(make):
    text = make(DeploySettings(cpus=3, max_batch_size=20)).files["config/batching.config"]
    parameters = text_format.Parse(text, BatchingParameters())
    assert parameters.max_batch_size.value == 20
    assert parameters.num_batch_threads.value == parameters.max_enqueued_batches.value == 3
    assert parameters.batch_timeout_micros.value == 0
    assert list(parameters.allowed_batch_sizes) == [1, 2, 3, 4, 6, 8, 12, 16, 20]
    # The server pads with the first element of a tensor (tensorflow/serving#1279).
    assert parameters.HasField("pad_variable_length_inputs") and not parameters.pad_variable_length_inputs
    fields = re.findall(r"(?:^# .*\n)+(?=(\w+))", text.partition("\n\n")[2], re.MULTILINE)
    assert set(fields) == {field.name for field, _ in parameters.ListFields()}, "a value without its reason"


@pytest.mark.parametrize("most", [1, 2, 7, 32, 48, 100])
def test_less_than_a_third_of_a_batch_is_padding(most):
    sizes = sizing.batch_sizes(most)
    assert list(sizes) == sorted(set(sizes)) and sizes[-1] == most
    for rows in range(1, most + 1):
        filled = min(size for size in sizes if size >= rows)
        assert (filled - rows) / filled < 1 / 3
    assert doctest.testmod(sizing) == (0, 1)


def test_inputs_of_varying_shape_are_not_batched(make, base):
    """A request of another shape would fail its whole batch, and padding would add a made-up choice."""
    result = make(stable=9)
    assert read_version(9, base / "9").varying_inputs == ("serving_default/choices",)
    assert not {flag for flag in result.flags if "batching" in flag} and "config/batching.config" not in result.files
    assert "serving_default/choices" in result.files["README.md"]
    assert make(stable=7).flags["enable_batching"] == "true"
    assert make(DeploySettings(merge_requests=True), stable=9).flags["enable_batching"] == "true"
    assert "enable_batching" not in make(DeploySettings(merge_requests=False), stable=7).flags


def test_flags_exist_in_the_server(make, settings):
    result = make(settings, canary=8)
    assert set(result.flags) <= set(FLAGS.split())
    assert result.flags["allow_version_labels_for_unavailable_models"] == "true", "labels at start need it"
    assert ("ssl_config_file" in result.flags) == settings.ssl
    cores = str(settings.cpus)
    assert result.flags["tensorflow_intra_op_parallelism"] == result.flags["tensorflow_inter_op_parallelism"] == cores


def test_prometheus_scrapes_the_configured_path(make):
    result = make()
    config = text_format.Parse(result.files["config/monitoring.config"], MonitoringConfig()).prometheus_config
    annotations = result.kinds["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert config.enable and config.path == annotations["prometheus.io/path"] == "/monitoring/prometheus/metrics"
    assert annotations["prometheus.io/port"] == result.flags["rest_api_port"]


def test_the_readmes_commands_make_a_valid_ssl_config(make, tmp_path, full):
    """Run the README's own commands with a stub of kubectl; the key is in no file of the deployment."""
    result = make(full)
    template = text_format.Parse(result.files["ssl.config.template"], SSLConfig())
    assert template.client_verify
    authority = trustme.CA()
    server = authority.issue_cert("bert.models.svc")
    (here := tmp_path / "here").mkdir()
    server.private_key_pem.write_to_path(here / "server.key")
    server.cert_chain_pems[0].write_to_path(here / "server.crt")
    authority.cert_pem.write_to_path(here / "ca.crt")
    (commands,) = re.findall(r"^```sh\n(umask.*?)^```", result.files["README.md"], re.MULTILINE | re.DOTALL)
    subprocess.run(["bash", "-ec", "kubectl() { :; }\n" + commands], cwd=here, check=True)
    written = text_format.Parse((tmp_path / "ssl.config").read_text(), SSLConfig())
    assert written.server_key.encode() == server.private_key_pem.bytes()
    assert written.server_cert.encode() == server.cert_chain_pems[0].bytes()
    assert written.custom_ca.encode() == authority.cert_pem.bytes()
    assert written.client_verify and (tmp_path / "ssl.config").stat().st_mode & 0o077 == 0


def test_memory_and_threads_are_derived(tmp_path, push):
    """Rows of 16 tokens, 2 heads, 8 wide: attention 2*2*16*16 + 4*16*8 = 1,536 floats, feed-forward
    2*16*100000 + 2*16*8 = 3,200,256, so 12.2 MiB a row. 1408 + 2*100 + 2*4*12.2 = 1,706 MiB, in steps of 128: 1,792.
    """
    path = push(tmp_path, 1, size=100 * MIB)
    widths = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 100_000, "max_position_embeddings": 16}
    (path / "bert_config.json").write_text(json.dumps(widths))
    assert read_version(1, path).row_bytes == 4 * 3_200_256
    settings = DeploySettings(cpus=2, max_batch_size=4)
    found = sizing.sizing_of(settings, [read_version(1, path)])
    assert found.memory_mib == 1792
    # 2 batches of 4 run, 2 wait, and 16 threads are left for probes and metrics.
    assert found.request_threads == 2 * 4 + 2 * 4 + 16
    assert sizing.sizing_of(DeploySettings(memory_mib=300), [read_version(1, path)]).memory_mib == 300


@pytest.mark.parametrize(
    ("size", "row", "loaded", "rows", "peak"),
    [(22.6, 5, 1278, 32, 1512), (94.2, 27, 1538, 32, 2881), (428.8, 30, 2194, 8, 2700)],
)
def test_derived_memory_covers_the_measurements(tmp_path, push, size, row, loaded, rows, peak):
    """Measured in docs/deploying.md, "Memory": two concurrent requests of `rows` texts of 512 tokens; at most twice."""
    version = read_version(1, push(tmp_path, 1, size=1))
    version = version._replace(size=int(size * MIB), row_bytes=row * MIB)
    found = sizing.sizing_of(DeploySettings(cpus=2, max_batch_size=rows), [version])
    assert loaded < peak <= found.memory_mib < 1.25 * peak
