"""Pushed versions without a graph, and deployments parsed from their files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.deploy.generate import Deployment, generate
from serving.deploy.settings import DeploySettings
from serving.protos import SavedModel

TENSORFLOW = "2.16.99"
FULL = DeploySettings(ssl=True, repository="registry.example.com:5000/team/bert", cpus=4)


@dataclass(frozen=True)
class Made:
    """A deployment with its parsed Kubernetes manifests."""

    deployment: Deployment

    @property
    def files(self) -> dict[str, str]:
        return self.deployment.files

    @property
    def kinds(self) -> dict[str, Any]:
        """Manifests by kind."""
        texts = [text for name, text in self.files.items() if name.startswith("kubernetes/")]
        return {manifest["kind"]: manifest for manifest in map(yaml.safe_load, texts)}

    @property
    def pod(self) -> dict[str, Any]:
        return self.kinds["Deployment"]["spec"]["template"]["spec"]

    @property
    def flags(self) -> dict[str, str]:
        """Flags of the server, by name."""
        return dict(flag.removeprefix("--").split("=", 1) for flag in self.pod["containers"][0]["args"])


def push(base: Path, version: int, varying: bool = False, tensorflow: str = TENSORFLOW, size: int = 0) -> Path:
    """Write the parts of a version that a deployment reads: no graph, but a signature, and weights beside it."""
    saved_model = SavedModel()
    graph = saved_model.meta_graphs.add()
    graph.meta_info_def.tensorflow_version = tensorflow
    for name in ("text", "choices") if varying else ("text",):
        shape = graph.signature_def["serving_default"].inputs[name].tensor_shape
        shape.dim.add(size=-1)
        if name == "choices":
            shape.dim.add(size=-1)
    path = base / str(version)
    for name in ("variables", "assets.extra"):
        (path / name).mkdir(parents=True)
    (path / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    (path / "variables" / "variables.index").write_bytes(bytes(size))
    (path / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"requests")
    (path / "model.weights.h5").write_bytes(b"for fine-tuning")
    return path


@pytest.fixture(scope="session", name="push")
def push_fixture() -> Callable[..., Path]:
    return push


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 7, 8 and 9, the last with inputs of varying shape; and folders that are not versions."""
    base = tmp_path_factory.mktemp("deploy") / "serving"
    for version in (7, 8, 9):
        push(base, version, varying=version == 9)
    (base / ".pushing" / "10").mkdir(parents=True)
    (base / "10.copy").mkdir()
    return base


@pytest.fixture(scope="session")
def make(base: Path) -> Callable[..., Made]:
    """`make(settings, stable=7, canary=None, name="bert")` is a deployment of `base`."""

    def make(
        settings: DeploySettings | None = None, stable: int | None = 7, canary: int | None = None, name="bert"
    ) -> Made:
        return Made(generate(base, base.parent / "out", name, settings or DeploySettings(), stable, canary))

    return make


@pytest.fixture(params=["plain", "full"])
def settings(request: pytest.FixtureRequest) -> DeploySettings:
    """Minimal and maximal settings."""
    return FULL if request.param == "full" else DeploySettings()


@pytest.fixture(scope="session")
def full() -> DeploySettings:
    return FULL
