"""Configuration of the served models and versions: TensorFlow Serving's ModelServerConfig.

    model_config_list {
      config {
        name: "bert"  base_path: "/models/bert"  model_platform: "tensorflow"
        model_version_policy { specific { versions: 41 versions: 42 } }
        version_labels { key: "stable" value: 41 }
        version_labels { key: "canary" value: 42 }
      }
    }

Rules and messages are those of `ValidateModelConfigList` in tensorflow/serving's `server_core.cc`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import text_format

from serving import errors
from serving.protos import ModelConfigProto, ModelServerConfig


@dataclass(frozen=True)
class VersionPolicy:
    """Selects the versions to serve among those that load: at most `latest` of the highest, only `specific` ones."""

    latest: int | None = 1
    specific: frozenset[int] | None = None

    def candidates(self, versions: Iterable[int]) -> list[int]:
        """Versions that may be served, highest first."""
        return sorted((number for number in versions if self.specific is None or number in self.specific), reverse=True)


ALL_VERSIONS = VersionPolicy(latest=None)


@dataclass(frozen=True)
class ModelConfig:
    """Configuration of one model: the folder of its versions, which may be empty or missing, and their labels."""

    name: str
    base_path: Path
    policy: VersionPolicy = VersionPolicy()
    labels: Mapping[str, int] = field(default_factory=dict)


def read_model_configs(path: Path) -> tuple[list[ModelConfig], bytes]:
    """Models of a ModelServerConfig in text format, and the content of its file; INVALID_ARGUMENT names the file."""
    try:
        content = path.read_bytes()
        proto = text_format.Parse(content.decode(), ModelServerConfig())
        if proto.WhichOneof("config") is None:
            raise errors.invalid("it has no model_config_list with the models to serve")
        return model_configs(proto), content
    except OSError as error:
        raise errors.invalid(f"{path}: {errors.file_reason(error)}") from error
    except (ValueError, text_format.ParseError, errors.ServingError) as error:
        raise errors.invalid(f"{path}: {error}") from error


def model_configs(proto: ModelServerConfig) -> list[ModelConfig]:
    """Models of `proto`; INVALID_ARGUMENT as in TensorFlow Serving, and for an empty list.

    TensorFlow Serving unloads all models for an empty list: a truncated file or a careless call would end the service.
    """
    if proto.WhichOneof("config") != "model_config_list":
        raise errors.invalid(
            "ServerModelConfig type not supported by HandleReloadConfigRequest."
            " Only ModelConfigList is currently supported"
        )
    configs = [_model_config(config) for config in proto.model_config_list.config]
    if not configs:
        raise errors.invalid("it names no model, so nothing would be served; stop the server instead")
    name, count = Counter(config.name for config in configs).most_common(1)[0]
    if count > 1:
        raise errors.invalid(f"Illegal to list model {name} multiple times in config list")
    return configs


def _model_config(proto: ModelConfigProto) -> ModelConfig:
    if proto.name in ("", ".", "..") or set(proto.name) & set("/:"):
        # It is part of REST paths, and clients normalise . and .. in paths.
        raise errors.invalid(f"Expected a model name without / and :, nor . or .., got {proto.name!r}")
    if not Path(proto.base_path).is_absolute():
        raise errors.invalid(
            f"Expected model {proto.name} to have an absolute path or URI; got base_path()={proto.base_path}"
        )
    if proto.model_platform not in ("", "tensorflow"):
        raise errors.invalid(f"Model {proto.name} requests unsupported platform {proto.model_platform}")
    choice = proto.model_version_policy
    if choice.HasField("all"):
        policy = ALL_VERSIONS
    elif choice.HasField("specific"):
        policy = VersionPolicy(latest=None, specific=frozenset(choice.specific.versions))
    else:
        policy = VersionPolicy(latest=max(1, choice.latest.num_versions))
    return ModelConfig(proto.name, Path(proto.base_path), policy, dict(proto.version_labels))
