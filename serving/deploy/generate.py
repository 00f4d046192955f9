"""All files of a deployment, from pushed versions and settings; the same inputs give the same bytes."""

import dataclasses
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from serving.deploy import containers, kubernetes
from serving.deploy.configs import (
    CANARY,
    METRICS_PATH,
    REST_PORT,
    SSL_FILE,
    STABLE,
    config_files,
    ready_path,
    ssl_template,
)
from serving.deploy.errors import CannotDeploy
from serving.deploy.kubernetes import DRAIN_SECONDS, MONITORING_NAMESPACE, USER_ID, App
from serving.deploy.pushed import PushedVersion, find_versions, read_version
from serving.deploy.settings import DeploySettings
from serving.deploy.sizing import sizing_of

_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
# Releases of TensorFlow Serving by the TensorFlow of each stack (docs/platforms.md), oldest first.
_RELEASES = {"2.16": "2.16.1", "2.21": "2.21.0"}
_CONTENT_DIGITS = 10


@dataclass(frozen=True)
class Deployment:
    """Files of a deployment, and facts for the command's last line.

    Attributes:
        files: text by name, relative to the deployment's folder.
        image: name of the image to build, with its tag.
    """

    files: dict[str, str]
    image: str
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

    Raises:
        CannotDeploy: a version, name or TensorFlow release does not fit.
    """
    if not _MODEL_NAME.fullmatch(model_name):
        raise CannotDeploy(f"{model_name!r} is not a model name: at most 40 of A-Z a-z 0-9 . _ -, no sign first")
    stable, canary = _select_versions(base, stable, canary)
    paths = find_versions(base)
    versions = [read_version(version, paths[version]) for version in sorted({stable, canary})]
    sizing = sizing_of(settings, versions)
    config = config_files(model_name, stable, canary, sizing)
    name = re.sub("[._]", "-", model_name.lower()).rstrip("-")
    repository = settings.repository or f"{name}-tf-serving"
    base_image = settings.base_image or _base_image(versions)
    numbers = "-".join(str(version.version) for version in versions)
    app = App(name, model_name, f"{repository}:{numbers}", settings, sizing, config)
    app = dataclasses.replace(app, image=f"{app.image}-{_content_of(app, base_image, versions)}")
    models = os.path.relpath(base, output)

    files = {f"{containers.CONFIG_FOLDER}/{file}": text for file, text in config.items()}
    files |= {f"kubernetes/{file}": text for file, text in kubernetes.manifests(app).items()}
    files["Dockerfile"] = containers.dockerfile(app, base_image, versions)
    files["compose.yaml"] = containers.compose(app, models)
    if settings.ssl:
        files[f"{SSL_FILE}.template"] = ssl_template()
    files["README.md"] = _readme(app, models, versions, stable, canary)
    return Deployment(files, app.image, base_image, stable, canary, sizing.memory_mib, sizing.batching)


def _content_of(app: App, base_image: str, versions: Sequence[PushedVersion]) -> str:
    """Hash of everything that goes into the image.

    Nodes cache images by tag (IfNotPresent), so an image that is rebuilt from a patched base image or a re-pushed
    version needs a new tag to reach them.
    """
    contents = (version.content for version in versions)
    texts = [containers.dockerfile(app, base_image, versions), *app.config.values(), *contents]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:_CONTENT_DIGITS]


def _select_versions(base: Path, stable: int | None, canary: int | None) -> tuple[int, int]:
    versions = find_versions(base)
    for label, version in ((STABLE, stable), (CANARY, canary)):
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


def _readme(app: App, models: str, versions: Sequence[PushedVersion], stable: int, canary: int) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template("readme.md").render(
        app=app,
        kubectl=f"kubectl -n {app.settings.namespace}" if app.settings.namespace else "kubectl",
        models=models,
        context=containers.MODELS_CONTEXT,
        varying=sorted({name for version in versions for name in version.varying_inputs}),
        stable=stable,
        canary=canary,
        ready_path=ready_path(app.model_name),
        metrics_path=METRICS_PATH,
        monitoring_namespace=MONITORING_NAMESPACE,
        drain_seconds=DRAIN_SECONDS,
        ssl_file=SSL_FILE,
        user=USER_ID,
        rest_port=REST_PORT,
    )
