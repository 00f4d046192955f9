"""All files of a deployment, from pushed versions and settings; the same inputs give the same bytes.

`templates/` has a template for each file, at its place in the deployment's folder; what renders to nothing is left out.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from serving.deploy.settings import CannotDeploy, DeploySettings
from serving.deploy.sizing import PushedVersion, Sizing, find_versions, read_version, sizing_of

_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
# Releases of TensorFlow Serving by the TensorFlow of each stack (docs/platforms.md), oldest first.
_RELEASES = {"2.16": "2.16.1", "2.21": "2.21.0"}
_HASH_DIGITS = 10
_TEMPLATES = Path(__file__).parent / "templates"
# A gRPC client keeps one connection, and thus one pod. Connections with a maximum age spread clients over new pods, and
# are gone from a pod before it stops. gRPC varies the age by a tenth.
_CONNECTION_AGE_SECONDS = 30
# What every template may name; the rest follows from versions and settings.
_CONSTANTS: Mapping[str, Any] = {
    "metrics_path": "/monitoring/prometheus/metrics",
    # Namespace from which Prometheus may read metrics.
    "monitoring_namespace": "monitoring",
    # User of the server in the image and in a pod, unknown to any machine.
    "user": 10001,
    # Time from a pod's removal from the Service until it is stopped: by then every connection has reached its maximum
    # age, plus a tenth. The server does not drain, and ignores SIGTERM as process 1.
    "drain_seconds": _CONNECTION_AGE_SECONDS + 10,
}


@dataclass(frozen=True)
class Deployment:
    """Files of a deployment (text by relative name), and facts for the command's last line."""

    files: dict[str, str]
    image: str  # to build, with its tag
    base_image: str
    stable: int
    canary: int
    memory_mib: int
    batching: bool


def generate(
    base: Path, output: Path, model_name: str, settings: DeploySettings, stable: int | None, canary: int | None
) -> Deployment:
    """Generate the files of a deployment of the versions in `base`, without writing them.

    Args:
        base: folder of `<version>/saved_model.pb`.
        output: folder for the files; they contain the path from there to `base`.
        stable: version with that label; None for the newest that is not the canary.
        canary: version with that label, loaded besides `stable`; None for no canary.
    """
    if not _MODEL_NAME.fullmatch(model_name):
        raise CannotDeploy(f"{model_name!r} is not a model name: at most 40 of A-Z a-z 0-9 . _ -, no sign first")
    stable, canary = _select_versions(base, stable, canary)
    paths = find_versions(base)
    versions = [read_version(version, paths[version]) for version in sorted({stable, canary})]
    sizing = sizing_of(settings, versions)
    name = re.sub("[._]", "-", model_name.lower()).rstrip("-")
    base_image = settings.base_image or _base_image(versions)
    ready_path = f"/v1/models/{model_name}/labels/stable/metadata"
    values = {
        **_CONSTANTS,
        "name": name,
        "model_name": model_name,
        "settings": settings,
        "sizing": sizing,
        "versions": versions,
        "stable": stable,
        "canary": canary,
        "base_image": base_image,
        # 200 if and only if the stable version answers; the usual path is also 200 while it loads and after it failed.
        "ready_path": ready_path,
        "health": health_command(ready_path, 8501),
        "flags": _server_flags(sizing, settings),
        "models": os.path.relpath(base, output),
        "kubectl": f"kubectl -n {settings.namespace}" if settings.namespace else "kubectl",
        "varying": sorted({name for version in versions for name in version.varying_inputs}),
    }
    config = {file.removeprefix("config/"): text for file, text in _render("config/*", values).items()}
    values |= {
        "config": config,
        "config_name": f"{name}-config-{_hash(part for item in config.items() for part in item)}",
    }
    # Nodes cache images by tag (IfNotPresent): one of a patched base image or of a version pushed again needs a new
    # tag to reach them. So the tag has a hash of everything that goes into the image.
    contents = [*_render("Dockerfile", values).values(), *config.values(), *(version.content for version in versions)]
    numbers = "-".join(str(version.version) for version in versions)
    image = f"{settings.repository or f'{name}-tf-serving'}:{numbers}-{_hash(contents)}"
    files = _render("**/*", values | {"image": image})
    return Deployment(files, image, base_image, stable, canary, sizing.memory_mib, sizing.batching)


def _render(pattern: str, values: Mapping[str, Any]) -> dict[str, str]:
    """The files of the templates that match, by name."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    # Not jinja's `tojson`, which escapes for HTML: an apostrophe becomes \u0027.
    environment.filters["json"] = json.dumps
    names = [path.relative_to(_TEMPLATES).as_posix() for path in sorted(_TEMPLATES.glob(pattern)) if path.is_file()]
    texts = {name: environment.get_template(name).render(values) for name in names if not name.endswith(".inc")}
    return {name: text for name, text in texts.items() if text}


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:_HASH_DIGITS]


def _server_flags(sizing: Sizing, settings: DeploySettings) -> list[str]:
    """Command-line flags of `tensorflow_model_server`."""
    age = f"grpc.max_connection_age_ms={1000 * _CONNECTION_AGE_SECONDS},grpc.max_connection_age_grace_ms=10000"
    flags: dict[str, object] = {
        "port": 8500,
        "rest_api_port": 8501,
        "model_config_file": "/etc/tf-serving/models.config",
        # Otherwise a server whose first configuration has labels does not start (tensorflow/serving#1608).
        "allow_version_labels_for_unavailable_models": "true",
        "monitoring_config_file": "/etc/tf-serving/monitoring.config",
        # A version that fails to load will fail again: by default the server retries for five minutes first.
        "max_num_load_retries": 0,
        # The default is the number of cores of the machine, regardless of the container's limit.
        "tensorflow_intra_op_parallelism": settings.cpus,
        "tensorflow_inter_op_parallelism": settings.cpus,
        "grpc_max_threads": sizing.request_threads,
        "rest_api_num_threads": sizing.request_threads,
        "grpc_channel_arguments": age,
    }
    if sizing.batching:
        flags |= {"enable_batching": "true", "batching_parameters_file": "/etc/tf-serving/batching.config"}
    if settings.ssl:
        flags["ssl_config_file"] = "/etc/tf-serving-ssl/ssl.config"
    return [f"--{name}={value}" for name, value in flags.items()]


def health_command(path: str, port: int) -> list[str]:
    """Command that succeeds if GET `path` on this machine returns 200; needs only bash."""
    request = f"GET {path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n"
    ask = f"exec 3<>/dev/tcp/127.0.0.1/{port} && printf '{request}' >&3"
    return ["bash", "-c", f'{ask} && read -r _ status _ <&3 && [ "$status" = 200 ]']


def _select_versions(base: Path, stable: int | None, canary: int | None) -> tuple[int, int]:
    versions = find_versions(base)
    for label, version in (("stable", stable), ("canary", canary)):
        if version is not None and version not in versions:
            there = ", ".join(map(str, sorted(versions)))
            raise CannotDeploy(f"{base} has no version {version} for {label}; there are: {there}")
    if stable is None:
        others = [version for version in versions if version != canary]
        if not others:
            raise CannotDeploy(f"{base}: {canary} is its only version; a canary needs another one as stable")
        stable = max(others)
    return stable, stable if canary is None else canary


def _base_image(versions: Sequence[PushedVersion]) -> str:
    """Default base image: TensorFlow Serving's release of the newest TensorFlow that exported a version."""
    releases = []
    for version in versions:
        release = _RELEASES.get(version.tensorflow_version.rpartition(".")[0])
        if release is None:
            by = version.tensorflow_version or "(unknown)"
            raise CannotDeploy(
                f"version {version.version} was exported by TensorFlow {by}, and the images known here are those of "
                f"{', '.join(_RELEASES)}: give --base-image tensorflow/serving:TAG, not older than that TensorFlow"
            )
        releases.append(release)
    return f"tensorflow/serving:{max(releases, key=list(_RELEASES.values()).index)}"
