"""Settings that must be made before TensorFlow starts; pytest reads this before anything below this folder."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hypothesis
import tensorflow as tf

# Two logical CPUs, so that MirroredStrategy has something to mirror over.
(CPU,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)

# A time limit of an example fails on a machine that is busy, and says nothing of the code.
hypothesis.settings.register_profile("bert-tfx", deadline=None)
hypothesis.settings.load_profile("bert-tfx")
