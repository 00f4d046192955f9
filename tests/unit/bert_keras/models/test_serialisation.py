"""Every model from its configuration, its weights' file and its `.keras` file: the same outputs, bit for bit."""

from unittest import mock

import keras
import numpy as np
import pytest

from bert_keras.models.backbone import BertBackbone
from tests.support.models import every_model
from tests.support.models.every_model import CASES, TINY, features, random_model

SAME_CLASSES = {"modern", "deberta", "modern electra", "modern, left to right"}
CASES_AND_BACKBONE = {
    # Packed rows are no other model, and every class stores a configuration alike.
    **{name: case for name, case in CASES.items() if "packed" not in name and name not in SAME_CLASSES},
    "backbone": every_model.Case(lambda: BertBackbone(TINY, has_pooler=False), features, None),
}


@pytest.mark.parametrize("name", CASES_AND_BACKBONE)
def test_round_trips(name, tmp_path):
    case = CASES_AND_BACKBONE[name]
    model = random_model(case)
    of_config = type(model).from_config(model.get_config())
    of_config.build()
    assert of_config.get_config() == model.get_config()
    model.save_weights(tmp_path / "model.weights.h5")
    of_config.load_weights(tmp_path / "model.weights.h5")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is type(model)
    assert [v.path for v in loaded.trainable_variables] == [v.path for v in model.trainable_variables]
    with mock.patch("bert_keras.models.electra.sample", every_model.best_guess):
        ours, *others = (every_model.named(one(case.features())) for one in (model, of_config, loaded))
    for other in others:
        assert other.keys() == ours.keys()
        for key, value in ours.items():
            np.testing.assert_array_equal(other[key], value, err_msg=key)
