"""Resources by step: defaults, a file's overrides, invalid files."""

import dataclasses

import pytest

from bert_keras.errors import InputError
from pipeline.runners.stage_resources import DEFAULTS, StageResources, resources_of

STEPS = ["compile", "CorpusGen", "PretrainExampleGen", "PretrainExampleGen_second_phase", "Trainer", "finish"]


def written(tmp_path, text):
    path = tmp_path / "resources.yaml"
    path.write_text(text)
    return str(path)


def test_defaults_are_by_stage():
    found = resources_of(None, STEPS)
    assert found["CorpusGen"] == StageResources()
    assert found["Trainer"] == DEFAULTS["Trainer"]
    assert found["PretrainExampleGen_second_phase"] == DEFAULTS["PretrainExampleGen"]


def test_a_file_overrides_the_defaults(tmp_path):
    path = written(tmp_path, "Trainer: {accelerator: nvidia.com/gpu, accelerator_count: 8}\nCorpusGen: {cpu: 0.5}")
    found = resources_of(path, STEPS)
    gpus = dataclasses.replace(DEFAULTS["Trainer"], accelerator="nvidia.com/gpu", accelerator_count=8)
    assert found["Trainer"] == gpus
    assert found["CorpusGen"] == StageResources(cpu="0.5")
    assert found["finish"] == DEFAULTS["finish"]


def test_a_stage_s_entry_applies_to_its_second_phase_unless_that_has_its_own(tmp_path):
    both = "PretrainExampleGen: {memory: 32Gi}\n"
    found = resources_of(written(tmp_path, both), STEPS)
    assert found["PretrainExampleGen_second_phase"] == found["PretrainExampleGen"] == StageResources("4", "32Gi")
    found = resources_of(written(tmp_path, both + "PretrainExampleGen_second_phase: {memory: 64Gi}"), STEPS)
    assert found["PretrainExampleGen_second_phase"].memory == "64Gi"
    assert found["PretrainExampleGen"].memory == "32Gi"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Trainr: {cpu: 4}", "Trainr is not a step of this pipeline; the nearest one is Trainer"),
        ("Trainer: {gpus: 4}", "Trainer: gpus: Unexpected keyword argument (docs/orchestration.md)"),
        ("Trainer: 4", "cannot be read as YAML such as 'Trainer: {memory: 32Gi}': Input should be a valid dictionary"),
        ("[Trainer]", "Input should be a valid dictionary"),
        ("Trainer: {memory: 4 GB}", "Trainer: memory: String should match pattern"),
        ("Trainer: {cpu: many}", "Trainer: cpu: String should match pattern"),
        ("Trainer: {accelerator_count: 3}", "Trainer: accelerator_count: Input should be 1, 2, 4, 8 or 16"),
        ("Trainer: {accelerator_count: few}", "Trainer: accelerator_count: Input should be 1, 2, 4, 8 or 16"),
        ("Trainer: {tolerations: [{keys: a}]}", "Input should be 'key', 'operator', 'value' or 'effect'"),
        ("Trainer: {cpu: 4", "cannot be read as YAML"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        resources_of(path, STEPS)
    assert str(error.value).startswith(path) and message in str(error.value)
    assert len(str(error.value).splitlines()) == 1
