"""Selection of the baseline model for a candidate."""

import json
from pathlib import Path

import pytest
from tensorflow.core.protobuf import saved_model_pb2
from tfx.types import standard_artifacts

from components.baseline_resolver.strategy import LatestComparableStrategy


@pytest.fixture
def make(tmp_path):
    """`make(3, ...)` is a Model artifact with id 3 and its example spec; without files if `there` is false."""

    def make(number, length=64, predictions=10, vocabulary="v", there=True, objective="mlm_nsp", sums=(), held_out=0.1):
        model = standard_artifacts.Model()
        model.id, model.uri = number, str(tmp_path / str(number))
        if there:
            folder = tmp_path / str(number) / "Format-Serving"
            folder.mkdir(parents=True)
            saved = saved_model_pb2.SavedModel()
            for name in sums:
                _ = saved.meta_graphs.add().signature_def["evaluate"].outputs[name]
            (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
            spec = {
                "max_seq_length": length,
                "max_predictions_per_seq": predictions,
                "vocabulary_sha256": vocabulary,
                "vocab_size": 100,
                "objective": objective,
                "eval_fraction": held_out,
                "counts": {"train": {"instances": number}, "eval": {"instances": 1}},
            }
            (folder / "example_spec.json").write_text(json.dumps(spec))
        return model

    return make


def blessing(number, blessed=1):
    artifact = standard_artifacts.ModelBlessing()
    artifact.set_int_custom_property("current_model_id", number)
    artifact.set_int_custom_property("blessed", blessed)
    return artifact


def resolve(candidate, models, blessings):
    """Ids of the resolved models."""
    found = LatestComparableStrategy().resolve_artifacts(
        None, {"candidate": [candidate], "model": models, "model_blessing": blessings}
    )
    assert found.keys() == {"candidate", "model", "model_blessing"}
    assert found["candidate"] == found["model_blessing"] == []
    return [model.id for model in found["model"]]


def test_a_first_model_has_no_baseline(make):
    candidate = make(1)
    assert resolve(candidate, [candidate], []) == []


def test_the_latest_blessed_model_is_the_baseline(make):
    models = [make(3), make(1), make(5), make(2)]
    blessings = [blessing(1), blessing(2), blessing(3, blessed=0)]
    assert resolve(make(9), models, blessings) == [2]
    assert resolve(make(10), models, [*blessings, blessing(3)]) == [3]


def test_a_model_that_could_not_be_served_is_no_baseline(make):
    """It is never pushed; with other limits the same model may be."""
    models, blessings, candidate = [make(1), make(2)], [blessing(1), blessing(2)], make(9)
    for served, baseline in (([], 2), ([blessing(2, 0)], 1), ([blessing(2, 0), blessing(2)], 2), ([blessing(0, 0)], 2)):
        inputs = {"model": models, "model_blessing": blessings, "infra_blessing": served}
        found = LatestComparableStrategy().resolve_artifacts(None, {"candidate": [candidate], **inputs})
        assert [model.id for model in found["model"]] == [baseline]


@pytest.mark.parametrize(
    ("blessings", "initial", "baseline"), [([], {}, 4), ([1], {}, 1), ([], {"sums": ["mlm_nll"]}, None)]
)
def test_without_a_blessed_model_the_initial_one_is_the_baseline_if_comparable(make, blessings, initial, baseline):
    """Without a trained head it has no `evaluate` signature with these outputs."""
    found = LatestComparableStrategy().resolve_artifacts(
        None,
        {
            "candidate": [make(9)],
            "model": [make(1)],
            "model_blessing": list(map(blessing, blessings)),
            "initial": [make(4, **initial)],
        },
    )
    assert [model.id for model in found.pop("model")] == ([] if baseline is None else [baseline])
    assert found == {"candidate": [], "model_blessing": [], "initial": []}


def test_a_rerun_does_not_get_the_model_itself_nor_a_later_one(make):
    models = [make(1), make(2), make(3)]
    assert resolve(models[1], models, [blessing(1), blessing(2), blessing(3)]) == [1]


@pytest.mark.parametrize(
    "other",
    [
        {"length": 128},
        {"predictions": 20},
        {"vocabulary": "w"},
        {"objective": "segment_pair"},
        {"sums": ["disc_nll"]},
        {"held_out": 0.05},  # it may have learnt what is held out now
    ],
)
def test_only_models_with_the_same_examples_and_metrics_are_comparable(make, other):
    assert resolve(make(9), [make(1), make(2, **other)], [blessing(1), blessing(2)]) == [1]
    assert resolve(make(10), [make(3, **other)], [blessing(3)]) == []


def test_more_text_does_not_change_the_format(make):
    # The number of training examples differs (it is the id here).
    assert resolve(make(9), [make(4)], [blessing(4)]) == [4]


def test_models_without_files_are_skipped(make):
    assert resolve(make(9), [make(1), make(2, there=False)], [blessing(1), blessing(2)]) == [1]


def test_fine_tuned_models_are_compared_within_a_task_and_its_labels(make):
    def fine_tuned(number, task="sst-2", labels=("0", "1"), held_out="0.1 by seed 1"):
        model = make(number)
        fields = {"task": task, "labels": labels, "counts": {"train": number}, "skipped": {}}
        fields |= {"held_out": held_out} if held_out else {}
        (Path(model.uri) / "Format-Serving" / "task_spec.json").write_text(json.dumps(fields))
        return model

    same, other, more = fine_tuned(1), fine_tuned(2, "cola"), fine_tuned(3, labels=("0", "1", "2"))
    models = [make(4), same, other, more, fine_tuned(5, held_out="0.1 by seed 2"), fine_tuned(6, held_out="")]
    blessings = [blessing(n) for n in range(1, 7)]
    assert resolve(fine_tuned(9), models, blessings) == [1]
    assert resolve(fine_tuned(10, held_out=""), models, blessings) == [6]
