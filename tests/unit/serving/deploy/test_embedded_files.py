"""docker/serve.*.yaml: valid for Kubernetes, and the command that they run is the server's."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from pipeline.cli import app
from serving.scheduling.admission import QueueSettings

DOCKER = Path(__file__).parents[4] / "docker"


def test_the_files_run_the_server():
    (service,) = yaml.safe_load((DOCKER / "serve.compose.yaml").read_text())["services"].values()
    deployment, port = yaml.safe_load_all((DOCKER / "serve.kubernetes.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    options = {name for option in get_command(app).commands["serve"].params for name in option.opts}
    for words in (service["command"], container["args"]):
        assert words[0] == "serve"
        named = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert {"--engine", "--model-dir"} <= named <= options
    names = {of["name"] for of in container["ports"]}
    assert {of["targetPort"] for of in port["spec"]["ports"]} == names == {"grpc", "rest"}
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert pod["terminationGracePeriodSeconds"] >= int(seconds) + QueueSettings().drain_seconds + 5
    for version in ("1.27", kubernetes_validate.latest_version()):
        for manifest in (deployment, port):
            kubernetes_validate.validate(manifest, version, strict=True)
    container["imagePullPolicies"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, version, strict=True)
