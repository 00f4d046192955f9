"""Settings that must be made before TensorFlow starts."""

import os
import warnings

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
warnings.filterwarnings("ignore", category=FutureWarning)


@pytest.fixture(scope="session", autouse=True)
def two_logical_devices():
    """Two logical CPUs: MirroredStrategy has something to mirror over."""
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
