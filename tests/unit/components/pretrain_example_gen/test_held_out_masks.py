"""The masks of held-out examples."""

import dataclasses

import pytest

from tests.unit.components.pretrain_example_gen.test_instances import example_settings, make, make_bucket


@pytest.mark.parametrize(("share", "expected"), [(0.15, {"train": 12, "eval": 6}), (0.0, {"train": 12, "eval": 12})])
@pytest.mark.parametrize("packing", [False, True])
def test_held_out_examples_may_have_a_share_of_masks_of_their_own(packing, share, expected):
    """Of 40 tokens with [CLS] and [SEP], 30 % are 12 and 15 % are 6."""
    settings = example_settings(40, objective="single_sequence", packing=packing)
    masking = dataclasses.replace(settings.masking, masked_lm_prob=0.3, held_out_prob=share)
    settings = dataclasses.replace(settings, masking=masking)
    for split in ("train", "eval"):
        _, examples, _ = make(make_bucket([[38]] * 30), settings, split)
        assert set(examples["masked_lm_weights"].sum(1)) == {expected[split]}
