"""Which models are served, and which of their versions: TensorFlow Serving's ModelServerConfig.

    model_config_list {
      config {
        name: "bert"  base_path: "/models/bert"  model_platform: "tensorflow"
        model_version_policy { specific { versions: 41 versions: 42 } }
        version_labels { key: "stable" value: 41 }
        version_labels { key: "canary" value: 42 }
      }
    }

The rules and their messages are those of `ValidateModelConfigList` in tensorflow/serving's `server_core.cc`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import text_format

from serving import errors
from serving.protos import ModelConfigProto, ModelServerConfig


@dataclass(frozen=True)
class VersionPolicy:
    """Which versions of a model are served, of those that load; all on disk without either limit.

    Attributes:
        latest: at most so many, the highest; None for no limit.
        specific: these alone; None for any.
    """

    latest: int | None = 1
    specific: frozenset[int] | None = None

    def candidates(self, versions: Iterable[int]) -> list[int]:
        """Those that may be served, highest first."""
        return sorted((one for one in versions if self.specific is None or one in self.specific), reverse=True)


ALL_VERSIONS = VersionPolicy(latest=None)


@dataclass(frozen=True)
class ModelConfig:
    """One model.

    Attributes:
        name: what clients ask for.
        base_path: holds `<version>/saved_model.pb`; may be empty, or missing, for now.
        policy: which versions.
        labels: versions by what clients may call them.
    """

    name: str
    base_path: Path
    policy: VersionPolicy = VersionPolicy()
    labels: Mapping[str, int] = field(default_factory=dict)


def read_model_configs(path: str | Path) -> list[ModelConfig]:
    """The models of a ModelServerConfig in text format; INVALID_ARGUMENT names the file and what is wrong."""
    try:
        proto = text_format.Parse(Path(path).read_text(), ModelServerConfig())
        if proto.WhichOneof("config") is None:
            raise errors.invalid("it has no model_config_list, which names the models to serve")
        return model_configs(proto)
    except OSError as error:
        raise errors.invalid(f"{path}: {errors.file_reason(error)}") from error
    except (ValueError, text_format.ParseError, errors.ServingError) as error:
        raise errors.invalid(f"{path}: {error}") from error


def model_configs(proto: ModelServerConfig) -> list[ModelConfig]:
    """The models of `proto`; INVALID_ARGUMENT as TensorFlow Serving says it."""
    if proto.WhichOneof("config") != "model_config_list":
        raise errors.invalid(
            "ServerModelConfig type not supported by HandleReloadConfigRequest."
            " Only ModelConfigList is currently supported"
        )
    configs = [_model_config(one) for one in proto.model_config_list.config]
    seen = set()
    for config in configs:
        if config.name in seen:
            raise errors.invalid(f"Illegal to list model {config.name} multiple times in config list")
        seen.add(config.name)
    return configs


def _model_config(proto: ModelConfigProto) -> ModelConfig:
    if not proto.name or set(proto.name) & set("/:"):
        # It is a part of REST's paths.
        raise errors.invalid(f"Expected a model name without / and :, got {proto.name!r}")
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
