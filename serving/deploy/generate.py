"""All files of a deployment, from pushed versions and settings; the same inputs give the same bytes.

`templates/` has a template for each file, at its place in the deployment's folder; what renders to nothing is left out.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from serving.deploy.settings import CannotDeploy, DeploySettings
from serving.deploy.sizing import PushedVersion, find_versions, read_version, sizing_of

_YAML_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
# Releases of TensorFlow Serving by the TensorFlow of each stack (docs/platforms.md), oldest first.
_RELEASES = {"2.16": "2.16.1", "2.21": "2.21.0"}
_HASH_DIGITS = 10
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,
)
# Not jinja's `tojson`, which escapes for HTML: an apostrophe becomes \u0027.
_TEMPLATES.filters["json"] = json.dumps


class Deployment(NamedTuple):
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

    They contain the path from `output` to `base`. `stable` None is the newest version that is not the canary.
    """
    if not _MODEL_NAME.fullmatch(model_name):
        raise CannotDeploy(f"{model_name!r} is not a model name: at most 40 of A-Z a-z 0-9 . _ -, no sign first")
    stable, canary = _select_versions(base, stable, canary)
    paths = find_versions(base)
    versions = [read_version(version, paths[version]) for version in sorted({stable, canary})]
    sizing = sizing_of(settings, versions)
    name = re.sub("[._]", "-", model_name.lower()).rstrip("-")
    if not name[0].isalpha() or name in _YAML_WORDS:  # Kubernetes' names begin with a letter, and are strings
        name = f"model-{name}"
    base_image = settings.base_image or _base_image(versions)
    ready_path = f"/v1/models/{model_name}/labels/stable/metadata"
    values = {
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
        "models": os.path.relpath(base, output),
        "varying": sorted({name for version in versions for name in version.varying_inputs}),
    }
    config = {file.removeprefix("config/"): text for file, text in _render("config/", values).items()}
    values |= {
        "flags": _TEMPLATES.get_template("flags.inc").render(values).split(),
        "config": config,
        "config_name": f"{name}-config-{_hash(part for item in config.items() for part in item)}",
    }
    # Nodes cache images by tag (IfNotPresent): one of a patched base image or of a version pushed again needs a new
    # tag to reach them. So the tag has a hash of everything that goes into the image.
    contents = [*_render("Dockerfile", values).values(), *config.values(), *(version.content for version in versions)]
    numbers = "-".join(str(version.version) for version in versions)
    image = f"{settings.repository or f'{name}-tf-serving'}:{numbers}-{_hash(contents)}"
    files = _render("", values | {"image": image})
    return Deployment(files, image, base_image, stable, canary, sizing.memory_mib, sizing.batching)


def write_folder(output: Path, files: Mapping[str, str]) -> None:
    """Write `files`, text by relative name, as a new folder; CannotDeploy if there is one with other files."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise CannotDeploy(f"{output}: not an empty folder; remove it, or give another --output")
    for name, text in files.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(text, encoding="utf-8", newline="\n")


def _render(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    names = _TEMPLATES.list_templates(filter_func=lambda name: name.startswith(prefix) and not name.endswith(".inc"))
    texts = {name: _TEMPLATES.get_template(name).render(values) for name in names}
    return {name: text for name, text in texts.items() if text}


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:_HASH_DIGITS]


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
    if stable is None and set(versions) == {canary}:
        raise CannotDeploy(f"{base}: {canary} is its only version; a canary needs another one as stable")
    stable = max(version for version in versions if version != canary) if stable is None else stable
    return stable, stable if canary is None else canary


def _base_image(versions: Sequence[PushedVersion]) -> str:
    """Default base image: TensorFlow Serving's release of the newest TensorFlow that exported a version."""
    exported = [version.tensorflow_version.rpartition(".")[0] for version in versions]
    for version, release in zip(versions, exported, strict=True):
        if release not in _RELEASES:
            raise CannotDeploy(
                f"version {version.version} was exported by TensorFlow {version.tensorflow_version or '(unknown)'}, "
                f"and the images known here are those of {', '.join(_RELEASES)}: give --base-image "
                "tensorflow/serving:TAG, not older than that TensorFlow"
            )
    return f"tensorflow/serving:{_RELEASES[max(exported, key=list(_RELEASES).index)]}"
