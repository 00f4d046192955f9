"""models.config, with the rules of TensorFlow Serving's `ValidateModelConfigList` and its version policies."""

from pathlib import Path

import grpc
import pytest

from serving.errors import ServingError
from serving.models.config import ALL_VERSIONS, ModelConfig, VersionPolicy, read_model_configs

BERT = 'name: "bert" base_path: "/models/bert"'


def read(tmp_path: Path, *configs: str) -> list[ModelConfig]:
    path = tmp_path / "models.config"
    path.write_text("model_config_list { " + " ".join(f"config {{ {config} }}" for config in configs) + " }")
    configs, content = read_model_configs(path)
    assert content == path.read_bytes()
    return configs


def test_the_documented_form(tmp_path: Path) -> None:
    labels = 'version_labels { key: "stable" value: 41 } version_labels { key: "canary" value: 42 }'
    policy = "model_version_policy { specific { versions: 41 versions: 42 } }"
    (config,) = read(tmp_path, f'{BERT} model_platform: "tensorflow" {policy} {labels}')
    versions = VersionPolicy(latest=None, specific=frozenset({41, 42}))
    assert config == ModelConfig("bert", Path("/models/bert"), versions, {"stable": 41, "canary": 42})
    assert config.policy.candidates([40, 41, 42, 43]) == [42, 41]


@pytest.mark.parametrize(
    "written, policy",
    [
        ("", VersionPolicy(latest=1)),
        ("latest {}", VersionPolicy(latest=1)),
        ("latest { num_versions: 3 }", VersionPolicy(latest=3)),
        ("all {}", ALL_VERSIONS),
        ("specific {}", VersionPolicy(latest=None, specific=frozenset())),
    ],
)
def test_version_policies(tmp_path: Path, written: str, policy: VersionPolicy) -> None:
    (config,) = read(tmp_path, f"{BERT} model_version_policy {{ {written} }}")
    assert config.policy == policy


@pytest.mark.parametrize(
    "configs, message",
    [
        ([BERT, BERT], "Illegal to list model bert multiple times in config list"),
        (['name: "bert" base_path: "models"'], "Expected model bert to have an absolute path or URI; got base_path()="),
        (['name: "../bert" base_path: "/models"'], "a model name without / and :, nor . or .., got '../bert'"),
        (['base_path: "/models"'], "a model name without / and :, nor . or .., got ''"),
        (['name: ".." base_path: "/models"'], "a model name without / and :, nor . or .., got '..'"),
        ([f'{BERT} model_platform: "torch"'], "Model bert requests unsupported platform torch"),
        ([f"{BERT} modell: 1"], "no field named"),
        ([], "it names no model"),
    ],
)
def test_errors_are_one_line_with_the_file(tmp_path: Path, configs: list[str], message: str) -> None:
    with pytest.raises(ServingError) as raised:
        read(tmp_path, *configs)
    assert raised.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert message in str(raised.value) and str(tmp_path / "models.config") in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_file_and_missing_list(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match=r"/models\.config: no such file$"):
        read_model_configs(tmp_path / "models.config")
    (tmp_path / "models.config").write_text("")
    with pytest.raises(ServingError, match=r"/models\.config: it has no model_config_list"):
        read_model_configs(tmp_path / "models.config")
