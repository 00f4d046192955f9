"""Learning-rate schedules: the original's (google-research/bert, optimization.py) and others."""

import math

import keras
from keras import ops

from bert_keras.training.config import TrainingConfig


class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear decay from step 0 to 0 at `num_train_steps`; before `num_warmup_steps`, linear warm-up *instead*.

    So the rate drops at the end of the warm-up, as in the original: with peak 1e-4 and 10,000 of 1,000,000 steps it is
    0.9999e-4 at step 9,999 and 0.9900e-4 at step 10,000.
    """

    def __init__(self, learning_rate: float, num_train_steps: int, num_warmup_steps: int):
        self.learning_rate = learning_rate
        self.num_train_steps, self.num_warmup_steps = num_train_steps, num_warmup_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        warming_up = self.learning_rate * step / max(1, self.num_warmup_steps)
        return ops.where(step < self.num_warmup_steps, warming_up, self._decayed(step))

    def _decayed(self, step):
        return self.learning_rate * ops.maximum(0.0, 1.0 - step / self.num_train_steps)


class ContinuousWarmupLinearDecay(WarmupLinearDecay):
    """Linear warm-up to the peak at step `num_warmup_steps`, then linear decay to 0 at `num_train_steps`.

    As fairseq's `polynomial_decay` of power 1, but from 0 at step 0, as in the original.
    """

    def _decayed(self, step):
        remaining = (self.num_train_steps - step) / max(1, self.num_train_steps - self.num_warmup_steps)
        return self.learning_rate * ops.maximum(0.0, remaining)


class WarmupCosineDecay(WarmupLinearDecay):
    """Linear warm-up to the peak at step `num_warmup_steps`, then half a cosine to 0 at `num_train_steps`."""

    def _decayed(self, step):
        done = (step - self.num_warmup_steps) / max(1, self.num_train_steps - self.num_warmup_steps)
        return self.learning_rate * 0.5 * (1.0 + ops.cos(math.pi * ops.clip(done, 0.0, 1.0)))


class WarmupConstant(WarmupLinearDecay):
    """Linear warm-up to the peak at step `num_warmup_steps`, which then stays."""

    def _decayed(self, step):
        return self.learning_rate * ops.ones_like(step)


SCHEDULES = {
    "bert": WarmupLinearDecay,
    "linear": ContinuousWarmupLinearDecay,
    "cosine": WarmupCosineDecay,
    "constant": WarmupConstant,
}


def create_schedule(config: TrainingConfig) -> WarmupLinearDecay:
    """The learning-rate schedule of a training run."""
    return SCHEDULES[config.schedule](config.learning_rate, config.num_train_steps, config.num_warmup_steps)
