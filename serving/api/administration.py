"""HandleReloadConfigRequest: changes of the model list, protected by the tokens of `serving.middleware.security`.

Without a list the server reads its own file again. A list may name models that are already served, at their current
base path, and models below the folders that the server was started with. Other paths are refused because a SavedModel
is a program: administrators must not be able to run any code. Each call is logged with its caller and content.
"""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

import grpc
from google.protobuf import text_format

from serving.errors import ServingError
from serving.middleware.security import authorization
from serving.models.config import ModelConfig, model_configs
from serving.models.manager import ModelManager
from serving.protos import ReloadConfigRequest

log = logging.getLogger(__name__)

_LOGGED_CHARS = 2000


class Administration:
    """Changes the models for authorised callers.

    Args:
        base_paths: folders below which models may be loaded, besides base paths of served models.
    """

    def __init__(self, models: ModelManager, base_paths: Sequence[str]):
        self._models = models
        self._base_paths = [Path(path).resolve() for path in base_paths]

    def reload(self, request: ReloadConfigRequest, context: grpc.ServicerContext) -> None:
        """Serve the models of `request`; errors as in `ModelManager.reload`, PERMISSION_DENIED for a base path."""
        asked = text_format.MessageToString(request.config, as_one_line=True)[:_LOGGED_CHARS] or "the file, again"
        caller = _caller(context)
        try:
            configs = model_configs(request.config) if request.HasField("config") else None
            for config in configs or ():
                self._check(config)
            self._models.reload(configs)
        except ServingError as error:
            log.warning("%s was refused to change the models to: %s: %s", caller, asked, error)
            raise
        log.warning("%s changed the models to: %s", caller, asked)

    def _check(self, config: ModelConfig) -> None:
        # With links and `..` resolved; otherwise a path below an allowed folder could lead anywhere.
        path = config.base_path.resolve()
        served = {store.base_path.resolve() for store in self._models.stores.values()}
        if path not in served and not any(path.is_relative_to(allowed) for allowed in self._base_paths):
            raise ServingError(
                grpc.StatusCode.PERMISSION_DENIED,
                f"model {config.name}: {config.base_path} is not below an allowed folder"
                " (--admin-base-path of the server)",
            )


def _caller(context: grpc.ServicerContext) -> str:
    """Address, name in the certificate (if any), and the beginning of the token's SHA-256."""
    names = b", ".join(context.auth_context().get("x509_common_name", ())).decode(errors="backslashreplace")
    token = "".join(authorization(context.invocation_metadata())).partition(" ")[2].strip()
    certificate = f" with the certificate of {names!r}" if names else ""
    return f"{context.peer()}{certificate} and token {hashlib.sha256(token.encode()).hexdigest()[:8]}"
