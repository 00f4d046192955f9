"""Which devices a model trains on."""

from __future__ import annotations

import tensorflow as tf

from bert_keras.config import TrainingConfig
from bert_keras.errors import InputError


def create_strategy(config: TrainingConfig) -> tf.distribute.Strategy:
    """The distribution strategy of a run; the training loop is the same under each.

    Raises:
        InputError: the global batch does not divide over the devices.
    """
    gpus = tf.config.list_logical_devices("GPU")
    if config.strategy == "mirrored":
        # Several logical CPUs count as devices too: that is how the loop is tested without GPUs.
        devices = gpus or tf.config.list_logical_devices("CPU")
        strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    else:
        strategy = tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")
    replicas = strategy.num_replicas_in_sync
    for name in ("train_batch_size", "eval_batch_size"):
        if getattr(config, name) % replicas:
            raise InputError(
                f"training.{name} is {getattr(config, name)}, which does not divide over {replicas} devices; "
                f"give a multiple of {replicas}"
            )
    return strategy
