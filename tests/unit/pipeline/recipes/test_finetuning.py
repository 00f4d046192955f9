"""Recipes of fine-tuning: their defaults, and the thresholds of slices."""

import re

import pytest

from bert_keras.errors import InputError
from pipeline.recipes.finetuning import finetuning
from pipeline.recipes.settings import settings_of, with_settings


def test_the_sections_of_a_recipe():
    sections = {"data", "task", "training", "gate", "search", "restarts", "serving", "slices", "export"}
    assert {key.partition(".")[0] for key in settings_of(finetuning("sst-2"))} == sections


def test_the_paper_s_settings():
    assert (finetuning("mnli").training.train_batch_size, finetuning("mnli").training.num_train_epochs) == (32, 3.0)
    assert finetuning("squad1.1").task.max_seq_length == 384
    assert finetuning("squad2.0").training.num_train_epochs == 2.0
    assert (finetuning("swag").training.train_batch_size, finetuning("swag").training.learning_rate) == (16, 2e-5)


def test_a_slice_s_threshold_is_one_setting():
    bounds = "gate.min_slice_scores=label=1:0.7,length=over 256:0.5,source=a=b:c:0"
    gate = with_settings(finetuning("sst-2"), [bounds]).gate
    assert gate.slice_bounds == [("label", "1", 0.7), ("length", "over 256", 0.5), ("source", "a=b:c", 0.0)]
    assert with_settings(finetuning("sst-2"), [bounds, "gate.min_slice_scores="]).gate.slice_bounds == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["gate.min_slice_scores=genre=fiction:0.5"], "takes label, length, source as in 'length=over 256:0.5'"),
        (["gate.min_slice_scores=label=1"], "has 'label=1'; it takes"),
        (["gate.min_slice_scores=label=1:nan"], "has 'label=1:nan'; it takes"),
        (["gate.min_slice_scores=label=:0.5"], "has 'label=:0.5'; it takes"),
        (
            ["gate.min_slice_scores=length=over 99:0.5"],
            "has length 'over 99', which slices does not have; lengths are up",
        ),
        (["gate.min_slice_scores=length=over 99:0.5", "slices.lengths="], "lengths are none"),
        (["slices.lengths=64,32"], "slices.lengths is 64,32; each must be above the one before"),
    ],
)
def test_a_threshold_of_an_unknown_slice_is_refused_before_the_run(settings, said):
    with pytest.raises(InputError, match=re.escape(said)):
        with_settings(finetuning("sst-2"), settings)


def test_a_regression_has_no_slices_by_label():
    with pytest.raises(InputError, match="has label '1', which slices does not have"):
        with_settings(finetuning("sts-b"), ["gate.min_slice_scores=label=1:0.5"])


def test_an_unknown_task_is_refused():
    with pytest.raises(InputError, match="sst-3: no such task; there are mnli, qqp"):
        finetuning("sst-3")
