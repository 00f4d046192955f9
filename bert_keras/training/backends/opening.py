"""The choice between the backends of a training."""

import keras

from bert_keras.errors import InputError
from bert_keras.training.backends.devices import Devices, cluster
from bert_keras.training.config import SecondPhase, TrainingConfig

NO_SECOND_PHASE = SecondPhase()


def open_devices(config: TrainingConfig, second: SecondPhase = NO_SECOND_PHASE, rows_together: int = 1) -> Devices:
    """Open the devices of `config.strategy`; several workers must call it before anything else.

    Each device, and each part of an accumulated batch, has a multiple of `rows_together` rows. A process whose child
    trains (`bert_keras.training.backends.child`) leaves it the devices, and has a processor. InputError: a global batch
    does not divide over the devices, or workers, a GPU or a TPU are missing.
    """
    devices: Devices
    if keras.backend.backend() == "jax":
        from bert_keras.training.backends.on_jax.devices import JaxDevices

        devices = JaxDevices(config.strategy)
    else:
        from bert_keras.training.backends.on_tensorflow.devices import TensorFlowDevices

        devices = TensorFlowDevices(config.strategy if config.backend == "tensorflow" else "processor")
        if config.backend == "jax" and config.strategy == "multi_worker":
            devices.worker = cluster().worker
    parts = devices.replicas * config.gradient_accumulation_steps * rows_together
    together = f" in groups of {rows_together} rows" if rows_together > 1 else ""
    sizes = {
        "training.train_batch_size": config.train_batch_size,
        "training.batch_ramp_from": config.batch_ramp_from,
        "second_phase.train_batch_size": second.train_batch_size if second.num_train_steps else 0,
    }
    for name, size in sizes.items():
        if size % parts:
            raise InputError(
                f"{name} is {size}, which does not divide over {devices.replicas} devices and "
                f"training.gradient_accumulation_steps={config.gradient_accumulation_steps}{together}; give a multiple "
                f"of {parts}"
            )
    return devices
