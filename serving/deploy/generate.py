"""Every file of a deployment, from pushed versions and settings: the same inputs give the same bytes."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
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
_RELEASE = re.compile(r"(\d+)\.(\d+)\.\d+")
_SERVING_API = "tensorflow-serving-api"


@dataclass(frozen=True)
class Deployment:
    """What was written, for the last line of the command.

    Attributes:
        files: text by name, relative to the deployment's folder.
        image: what is built, with its tag.
        base_image: what it is built from.
        stable: the version of that label.
        canary: the version of that label.
        memory_mib: of a pod.
        batching: whether the server batches.
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
    """The files of a deployment of what was pushed to `base`; nothing is written.

    Args:
        base: holds `<version>/saved_model.pb`.
        output: where the files will lie; the path from there to `base` is in them.
        model_name: the name that clients ask for.
        settings: what was chosen.
        stable: the version of that label; None takes the newest that is not the canary.
        canary: the version of that label, loaded beside the other; None: no canary runs.

    Raises:
        CannotDeploy: a version, a name or a TensorFlow does not fit.
    """
    if not _MODEL_NAME.fullmatch(model_name):
        raise CannotDeploy(f"{model_name!r} is no model name here: give at most 40 of A-Z a-z 0-9 . _ -, no sign first")
    stable, canary = _chosen(base, stable, canary)
    found = find_versions(base)
    versions = [read_version(version, found[version]) for version in sorted({stable, canary})]
    sizing = sizing_of(settings, versions)
    config = config_files(model_name, stable, canary, sizing)
    name = re.sub("[._]", "-", model_name.lower()).rstrip("-")
    repository = settings.repository or f"{name}-tf-serving"
    image = f"{repository}:{'-'.join(str(version.version) for version in versions)}"
    app = App(name, model_name, image, settings, sizing, config)
    base_image = settings.base_image or _base_image(versions)
    models = os.path.relpath(base, output)

    files = {f"{containers.CONFIG_FOLDER}/{file}": text for file, text in config.items()}
    files |= {f"kubernetes/{file}": text for file, text in kubernetes.manifests(app).items()}
    files["Dockerfile"] = containers.dockerfile(app, base_image, versions)
    files["compose.yaml"] = containers.compose(app, models)
    if settings.ssl:
        files[f"{SSL_FILE}.template"] = ssl_template()
    files["README.md"] = _readme(app, models, versions, stable, canary)
    return Deployment(files, image, base_image, stable, canary, sizing.memory_mib, sizing.batching)


def _chosen(base: Path, stable: int | None, canary: int | None) -> tuple[int, int]:
    versions = find_versions(base)
    for label, version in ((STABLE, stable), (CANARY, canary)):
        if version is not None and version not in versions:
            there = ", ".join(map(str, sorted(versions)))
            raise CannotDeploy(f"{base}: no version {version} to be {label}; there are: {there}")
    if stable is None:
        others = [version for version in versions if version != canary]
        if not others:
            raise CannotDeploy(f"{base}: {canary} is its only version, and no canary without a stable one beside it")
        stable = max(others)
    return stable, stable if canary is None else canary


def _base_image(versions: Sequence[PushedVersion]) -> str:
    """TensorFlow Serving has a release for each minor one of TensorFlow, and `tensorflow-serving-api` its number."""
    release = metadata.version(_SERVING_API)
    for version in versions:
        exported = _RELEASE.match(version.tensorflow_version)
        if exported is None or exported.groups() != _minor(release):
            by = version.tensorflow_version or "(it does not say which)"
            raise CannotDeploy(
                f"version {version.version} was exported by TensorFlow {by}, and {_SERVING_API} here is {release}: "
                "give --base-image tensorflow/serving:TAG, a release not older than that TensorFlow"
            )
    return f"tensorflow/serving:{release}"


def _minor(release: str) -> tuple[str, ...] | None:
    match = _RELEASE.match(release)
    return match and match.groups()


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
