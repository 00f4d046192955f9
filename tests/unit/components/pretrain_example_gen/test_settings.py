"""Validation of the settings, and values derived from them."""

import pytest

from bert_keras.data.example_format import ExampleLayout
from bert_keras.data.masking import MaskingSettings
from components.pretrain_example_gen.settings import ExampleSettings

DYNAMIC = MaskingSettings(when="dynamic")


@pytest.mark.parametrize(
    "settings",
    [
        {"max_seq_length": 5, "masking": MaskingSettings(max_predictions_per_seq=5)},
        {"max_seq_length": 65_536, "dupe_factor": 1000},
        {"short_seq_prob": 1.0, "packing": True, "max_sequences_per_pack": 255},
        {"packing": True, "max_sequences_per_pack": 2, "objective": "doc_sentences"},
    ],
)
def test_limits_are_allowed(settings):
    ExampleSettings(**settings)


def test_layout():
    assert ExampleSettings().layout == ExampleLayout.bert(128, 20)
    packed = ExampleSettings(objective="segment_pair", packing=True, masking=DYNAMIC).layout
    # 15 % of 128 tokens, rounded up, and one for each of the sequences.
    assert packed == ExampleLayout("segment_pair", 128, 20 + 3, 3, "dynamic")
    # The larger share of both splits.
    more = ExampleSettings(objective="segment_pair", packing=True, masking=MaskingSettings(held_out_prob=0.3))
    assert more.layout.max_predictions_per_seq == 39 + 3


@pytest.mark.parametrize(
    ("objective", "when", "train", "evaluation"),
    [
        ("mlm_nsp", "static", True, True),
        ("mlm_nsp", "dynamic", False, True),
        ("full_sentences", "dynamic", False, True),
        ("left_to_right", "static", False, False),
    ],
)
def test_masks_are_stored_by_split_and_setting(objective, when, train, evaluation):
    settings = ExampleSettings(objective=objective, masking=MaskingSettings(when=when))
    assert (settings.masks("train"), settings.masks("eval")) == (train, evaluation)


@pytest.mark.parametrize(
    ("objective", "when", "passes"),
    [
        ("mlm_nsp", "static", 7),
        ("mlm_nsp", "dynamic", 7),  # other pairs
        ("segment_pair", "dynamic", 7),
        ("doc_sentences", "static", 7),  # other masks
        ("doc_sentences", "dynamic", 1),
        ("left_to_right", "static", 1),
    ],
)
def test_passes_that_would_repeat_are_omitted(objective, when, passes):
    settings = ExampleSettings(objective=objective, dupe_factor=7, masking=MaskingSettings(when=when))
    assert (settings.passes("train"), settings.passes("eval")) == (passes, 1)
    with pytest.raises(ValueError, match="'test'; it must be 'train' or 'eval'"):
        settings.passes("test")
