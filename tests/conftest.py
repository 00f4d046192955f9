"""Settings that must be made before TensorFlow starts (pytest reads this before anything below this folder), and a
fixture of more than one folder."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hypothesis
import numpy as np
import pytest
import tensorflow as tf

# Two logical CPUs, so that MirroredStrategy has something to mirror over.
(CPU,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)

# A time limit of an example fails on a machine that is busy, and says nothing of the code.
hypothesis.settings.register_profile("bert-tfx", deadline=None)
hypothesis.settings.load_profile("bert-tfx")


@pytest.fixture(scope="session")
def random_bert():
    """Makes a model whose every weight is random: zeros and ones would hide one that is left out, or put elsewhere."""

    def make(config, model_class, seed=0):
        model = model_class(config)
        model.build()
        generator = np.random.default_rng(seed)
        model.set_weights([generator.normal(0, 0.3, weight.shape) for weight in model.get_weights()])
        return model

    return make
