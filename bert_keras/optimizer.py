"""The original's optimizer and learning-rate schedule (google-research/bert, optimization.py; FACTS D3)."""

from __future__ import annotations

import re

import keras
from keras import ops

from bert_keras.config import TrainingConfig

# Variables whose path matches are not decayed. Embeddings are.
NO_WEIGHT_DECAY = re.compile(r"layer_norm|bias")


@keras.saving.register_keras_serializable("bert_keras")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear decay from step 0 to 0 at `num_train_steps`; before `num_warmup_steps`, linear warm-up *instead*.

    So the rate jumps down where the warm-up ends, as the original's: peak 1e-4, 10,000 of 1,000,000 steps give
    0.9999e-4 at step 9,999 and 0.9900e-4 at step 10,000.
    """

    def __init__(self, learning_rate: float, num_train_steps: int, num_warmup_steps: int):
        self.learning_rate = learning_rate
        self.num_train_steps, self.num_warmup_steps = num_train_steps, num_warmup_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        decayed = self.learning_rate * ops.maximum(0.0, 1.0 - step / self.num_train_steps)
        warming_up = self.learning_rate * step / max(1, self.num_warmup_steps)
        return ops.where(step < self.num_warmup_steps, warming_up, decayed)

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }


@keras.saving.register_keras_serializable("bert_keras")
class BertAdam(keras.optimizers.Optimizer):
    """Adam without bias correction, epsilon outside the root, and decoupled weight decay.

        m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
        w = w - rate (m / (sqrt(v) + eps) + decay w)

    Without the correction the first step is 3.16 times the rate, not 1 (that is what warm-up is for).
    """

    def __init__(self, learning_rate, weight_decay_rate=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6, **kwargs):
        # Not Keras' own `weight_decay`: that one decays in a pass of its own, before the update.
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.weight_decay_rate, self.epsilon = weight_decay_rate, epsilon
        self.beta_1, self.beta_2 = beta_1, beta_2

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._momentums = [self.add_variable_from_reference(v, "momentum") for v in variables]
        self._velocities = [self.add_variable_from_reference(v, "velocity") for v in variables]
        # Decided here: on TensorFlow, `update_step` sees bare tf.Variables, which have no path.
        self._decayed = [not NO_WEIGHT_DECAY.search(v.path) for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        self.assign(m, self.beta_1 * m + (1.0 - self.beta_1) * gradient)
        self.assign(v, self.beta_2 * v + (1.0 - self.beta_2) * ops.square(gradient))
        update = m / (ops.sqrt(v) + self.epsilon)
        if self._decayed[index]:
            update = update + self.weight_decay_rate * variable
        self.assign_sub(variable, rate * update)

    def get_config(self):
        return {
            **super().get_config(),
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }


def create_schedule(config: TrainingConfig) -> WarmupLinearDecay:
    """The learning rate of each step of a pre-training run."""
    return WarmupLinearDecay(config.learning_rate, config.num_train_steps, config.num_warmup_steps)


def create_optimizer(config: TrainingConfig) -> BertAdam:
    """The optimizer of a pre-training run."""
    return BertAdam(create_schedule(config), weight_decay_rate=config.weight_decay)
