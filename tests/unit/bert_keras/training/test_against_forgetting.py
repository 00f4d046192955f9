"""What keeps a model that is trained on from forgetting: frozen layers; replay: test_mixed_examples.py."""

import re

import keras
import numpy as np
import pytest

from bert_keras.training.config import TrainingConfig
from bert_keras.training.optimizer import OPTIMIZERS, create_optimizer
from tests.support.models.small_training import loop


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_frozen_layers_keep_their_weights(optimizer):
    moved = {}
    for frozen in (0, 1, 2):
        layers = [keras.layers.Layer(name=name) for name in ("embeddings", "layer_0", "layer_1", "pooler")]
        variables = [layer.add_weight(name="kernel", shape=(2,), initializer="ones") for layer in layers]
        config = TrainingConfig(optimizer=optimizer, freeze_layers=frozen, num_warmup_steps=0, learning_rate=0.1)
        gradient = keras.ops.convert_to_tensor(np.array([0.3, -0.1], "float32"))
        create_optimizer(config, 2).apply([gradient] * 4, variables)
        moved[frozen] = [bool((np.asarray(v) != 1.0).all()) for v in variables]
    assert moved == {0: [True] * 4, 1: [False, False, True, True], 2: [False, False, False, True]}


def after(steps, optimizer, **settings):
    """An embedding of four rows, an output bias and a kernel, after some steps from ones."""
    learned = [[1, 3], [1, 3], [], None]
    names = ("embeddings/words", "predictions/bias", "layer_0/kernel", "drawn/kernel")
    variables = [
        keras.layers.Layer(name=layer).add_weight(
            name=name, shape=(4,) if name == "bias" else (4, 2), initializer="ones"
        )
        for layer, name in (path.split("/") for path in names)
    ]
    config = TrainingConfig(optimizer=optimizer, num_warmup_steps=0, learning_rate=0.1, **settings)
    made = create_optimizer(config, 1, learned)
    for _ in range(steps):
        made.apply([keras.ops.convert_to_tensor(np.full(v.shape, 0.3, "float32")) for v in variables], variables)
    return dict(zip(names, map(np.asarray, variables), strict=True))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_only_new_rows_and_drawn_heads_learn_if_the_initial_model_is_frozen(optimizer):
    free, frozen = (after(3, optimizer, freeze_initial=freeze) for freeze in (False, True))
    for name in ("embeddings/words", "predictions/bias"):
        np.testing.assert_array_equal(frozen[name][[0, 2]], np.ones_like(frozen[name][[0, 2]]))
        if optimizer != "lamb":  # which rescales a variable by the norm of all its rows
            np.testing.assert_array_equal(frozen[name][[1, 3]], free[name][[1, 3]])
        assert (frozen[name][[1, 3]] != 1).all()
    np.testing.assert_array_equal(frozen["layer_0/kernel"], np.ones((4, 2)))
    np.testing.assert_array_equal(frozen["drawn/kernel"], free["drawn/kernel"])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("freeze", [{"freeze_layers": 1}, {"freeze_initial": True}])
def test_what_is_frozen_for_the_first_steps_learns_after_them(optimizer, freeze):
    moved = [(after(steps, optimizer, **freeze, freeze_steps=2)["layer_0/kernel"] != 1).all() for steps in (1, 2, 3)]
    assert moved == [False, False, True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"freeze_steps": 5},
            "freeze_steps is 5, but nothing is frozen; set training.freeze_layers or training.freeze_i",
        ),
        ({"freeze_steps": -1, "freeze_layers": 1}, "freeze_steps is -1; it must be at least 0"),
        ({"freeze_layers": 2, "freeze_initial": True}, "freeze_layers is 2 and training.freeze_initial is on"),
    ],
)
def test_settings_of_freezing_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TrainingConfig(**settings)


def test_a_run_that_is_frozen_for_its_first_steps_resumes(examples):
    """Of three steps the first two learn rows 20 to 23 alone; the third one is of another process."""
    words = "word_embeddings/embeddings", "output_bias"
    paths = [variable.path for variable in loop(examples, "").model.trainable_variables]
    learned = [[20, 21, 22, 23] if path.endswith(words) else [] for path in paths]

    def start():
        settings = {"freeze_initial": True, "freeze_steps": 2, "num_warmup_steps": 0}
        return loop(examples, "", learned_rows=learned, **settings)

    def moved(run):
        run.steps._clip_and_update([np.full(v.shape, 0.3, "float32") for v in run.model.trainable_variables])
        new = [np.asarray(v) for v in run.model.trainable_variables]
        return [(ours != theirs).reshape(len(ours), -1).any(1) for ours, theirs in zip(new, before, strict=True)]

    run = start()
    before = [np.asarray(v) for v in run.model.trainable_variables]
    for _ in range(2):
        for rows, changed in zip(learned, moved(run), strict=True):
            assert np.flatnonzero(changed).tolist() == rows
    resumed = start()
    resumed.steps.set_arrays(run.steps.arrays())
    assert all(changed.all() for changed in moved(resumed))
