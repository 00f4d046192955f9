"""Dockerfile of the image with the models, and Docker Compose for one machine."""

import json
from collections.abc import Sequence

import jinja2

from serving.deploy.configs import (
    CONFIG_PATH,
    GRPC_PORT,
    MODELS_PATH,
    REST_PORT,
    SSL_FILE,
    SSL_PATH,
    ready_path,
    server_flags,
)
from serving.deploy.kubernetes import USER_ID, App, to_yaml
from serving.deploy.pushed import PushedVersion

# The second build context: the folder that models are pushed to.
MODELS_CONTEXT = "models"
CONFIG_FOLDER = "config"

_DOCKERFILE = """\
# Made by `bert-tfx deploy tf-serving`; README.md tells how to build it.
# `models` is a build context, not a stage:
# hadolint global ignore=DL3022
FROM {{ base_image }}

# Only the files that the server reads: weights, configuration and vocabulary for fine-tuning are not in the image.
{% for sources, target in copies -%}
COPY --from={{ context }} --chown={{ user }}:{{ user }} {{ (sources + [target]) | tojson }}
{% endfor -%}
COPY --chown={{ user }}:{{ user }} {{ [config_folder ~ "/", config_path ~ "/"] | tojson }}

USER {{ user }}:{{ user }}
EXPOSE {{ ports }}

# 200 if the stable version answers. The base image has no curl, but bash can open sockets.
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 \\
    CMD {{ healthcheck | tojson }}

ENTRYPOINT ["tensorflow_model_server"]
CMD {{ flags }}
"""


def dockerfile(app: App, base_image: str, versions: Sequence[PushedVersion]) -> str:
    """The Dockerfile: `versions` in `base_image`, run by USER_ID."""
    copies = []
    for version in versions:
        target = f"{MODELS_PATH}/{app.model_name}/{version.version}/"
        copies.append(([f"{version.folder}/{name}" for name in version.files], target))
        copies += [([f"{version.folder}/{name}/"], f"{target}{name}/") for name in version.folders]
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    # Not jinja's `tojson`, which escapes for HTML: an apostrophe becomes \\u0027.
    environment.filters["tojson"] = json.dumps
    return environment.from_string(_DOCKERFILE).render(
        base_image=base_image,
        copies=copies,
        context=MODELS_CONTEXT,
        user=USER_ID,
        config_folder=CONFIG_FOLDER,
        config_path=CONFIG_PATH,
        ports=f"{GRPC_PORT} {REST_PORT}",
        healthcheck=health_command(ready_path(app.model_name), REST_PORT),
        flags=" \\\n    ".join(json.dumps(server_flags(app.sizing, app.settings.ssl)).split(" ")),
    )


def health_command(path: str, port: int) -> list[str]:
    """Command that succeeds if GET `path` on this machine returns 200; needs only bash."""
    request = f"GET {path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n"
    ask = f"exec 3<>/dev/tcp/127.0.0.1/{port} && printf '{request}' >&3"
    return ["bash", "-c", f'{ask} && read -r _ status _ <&3 && [ "$status" = 200 ]']


def compose(app: App, models: str) -> str:
    """Docker Compose: one container, with its ports on the loopback address only.

    Args:
        models: the folder that models are pushed to, relative to the folder of this file.
    """
    ports = [GRPC_PORT] if app.settings.ssl else [GRPC_PORT, REST_PORT]
    service = {
        "image": app.image,
        "build": {"context": ".", "additional_contexts": {MODELS_CONTEXT: models}},
        "user": f"{USER_ID}:{USER_ID}",
        "ports": [f"127.0.0.1:{port}:{port}" for port in ports],
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        # The server ignores SIGTERM as process 1.
        "init": True,
        "restart": "unless-stopped",
        "deploy": {"resources": {"limits": {"cpus": str(app.settings.cpus), "memory": f"{app.sizing.memory_mib}M"}}},
    }
    content: dict = {"name": app.name, "services": {"tf-serving": service}}
    if app.settings.ssl:
        service["secrets"] = [{"source": "ssl", "target": f"{SSL_PATH}/{SSL_FILE}"}]
        content["secrets"] = {"ssl": {"file": "${SSL_CONFIG:?the file that README.md makes}"}}
    return to_yaml(content)
