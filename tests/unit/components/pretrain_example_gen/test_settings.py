"""Validation of the settings, and values derived from them."""

import pytest

from bert_keras.data.example_format import ExampleLayout
from bert_keras.data.masking import MaskingSettings
from components.pretrain_example_gen.settings import ExampleSettings

DYNAMIC = MaskingSettings(when="dynamic")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_seq_length": 4}, "max_seq_length is 4; it must be from 5 to 65536"),
        ({"max_seq_length": 65_537}, "max_seq_length is 65537"),
        ({"dupe_factor": 0}, "dupe_factor is 0; it must be from 1 to 1000"),
        ({"dupe_factor": 1001}, "dupe_factor is 1001"),
        ({"short_seq_prob": 1.1}, r"short_seq_prob is 1.1; it must be in \[0, 1\]"),
        ({"short_seq_prob": -0.1}, "short_seq_prob is -0.1"),
        ({"max_sequences_per_pack": 1}, "max_sequences_per_pack is 1; it must be from 2 to 255"),
        ({"max_sequences_per_pack": 256}, "max_sequences_per_pack is 256"),
        (
            {"max_seq_length": 16},
            "max_predictions_per_seq is 20; it must be at most examples.max_seq_length, 16",
        ),
        (
            {"nsp": "balanced", "objective": "segment_pair"},
            r"examples\.nsp is 'balanced', but examples\.objective 'segment_pair'",
        ),
        ({"cut_sentences": True}, r"examples\.cut_sentences is true, but .* 'mlm_nsp' are pairs of whole sentences"),
        (
            {"packing": True, "objective": "full_sentences"},
            r"examples\.packing is true, but rows of examples\.objective 'full_sentences' are full",
        ),
        (
            {"objective": "left_to_right", "masking": DYNAMIC},
            r"examples\.masking\.when is 'dynamic', but .* examples\.objective 'left_to_right'",
        ),
    ],
)
def test_invalid_settings_are_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        ExampleSettings(**settings)


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
