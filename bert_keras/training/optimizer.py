"""Optimizers: the original's Adam (google-research/bert, optimization.py) and others.

w, m, v, g: a variable, the running means of its gradient and of the gradient's square, and its gradient; b1, b2: the
betas; t: the step, counted from 1; rate: the schedule's value times the variable's `layer_multiplier`.
"""

import math
import re
from collections.abc import Iterable, Sequence

import keras
import numpy as np
from keras import ops

from bert_keras.training.config import TrainingConfig
from bert_keras.training.schedules import create_schedule

# Variables with a matching path are not decayed (nor rescaled by LAMB). Embeddings are decayed.
NO_WEIGHT_DECAY = re.compile(r"layer_norm|(^|/)norm/|bias")

_EMBEDDINGS = re.compile(r"(^|/)(embeddings(_project)?|relative_positions)/")
_ENCODER_LAYER = re.compile(r"(?:^|/)layer_(\d+)/")


def layer_multiplier(path: str, layer_decay: float, num_layers: int) -> float:
    """The factor of the learning rate for the variable at `path` (google-research/electra, model/optimization.py).

    `layer_decay` ** (`num_layers` + 2 - depth): the depth of `.../embeddings/...` is 0, of `.../layer_{i}/...` i + 1;
    everything after the encoder, also the pooler, keeps the full rate. With .8 and 12 layers:

        bert/embeddings/word_embeddings/embeddings .0440; bert/layer_0/... .0550; bert/layer_11/... .64; pooler 1

    ValueError: an encoder layer beyond `num_layers`.
    """
    if _EMBEDDINGS.search(path):
        return layer_decay ** (num_layers + 2)
    if match := _ENCODER_LAYER.search(path):
        index = int(match[1])
        if index >= num_layers:
            raise ValueError(f"{path} is in encoder layer {index}, but num_layers is {num_layers}")
        return layer_decay ** (num_layers + 1 - index)
    return 1.0


def is_frozen(path: str, freeze_layers: int) -> bool:
    """Return whether variable `path` is in the embeddings or the lowest `freeze_layers` layers; 0 freezes none."""
    match = _ENCODER_LAYER.search(path)
    return freeze_layers > 0 and bool(_EMBEDDINGS.search(path) or (match and int(match[1]) < freeze_layers))


# Of each variable, in order, the rows that learn; None: all rows. Variables have names of their own in each process.
LearnedRows = Sequence[Sequence[int] | None]


def row_multiplier(variable: keras.Variable, rows: Sequence[int] | None) -> float | np.ndarray:
    """The factor of the learning rate for the rows of a variable, a number or float32 [rows, 1, ...]: 1 for `rows`."""
    if not rows:
        return float(rows is None)
    factors = np.zeros((variable.shape[0], *[1] * (len(variable.shape) - 1)), "float32")
    factors[list(rows)] = 1.0
    return factors


def num_encoder_layers(variables: Iterable[keras.Variable]) -> int:
    """Number of encoder layers, from the paths of the variables; 0 for a model without any."""
    matches = (_ENCODER_LAYER.search(variable.path) for variable in variables)
    return max((int(match[1]) + 1 for match in matches if match), default=0)


class DecoupledAdam(keras.optimizers.Optimizer):
    """Base of the optimizers below: running means, decoupled weight decay and layer-wise rates.

    All replicas must pass the same gradients, already summed over the replicas.

        m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
        w = w - rate (direction(m, v) + decay w)

    Variables that match `NO_WEIGHT_DECAY` decay with `config.decay_all` only. `num_layers`: see `layer_multiplier`. The
    rate is 0 of what `is_frozen` and, with `config.freeze_initial`, of all but the `learned_rows`.
    """

    # b1: every published model of the recipes has it.
    beta_1 = 0.9

    def __init__(self, config: TrainingConfig, num_layers: int, learned_rows: LearnedRows | None = None):
        # Not Keras' own `weight_decay`, which decays in a separate pass before the update.
        super().__init__(learning_rate=create_schedule(config))
        self.config, self.num_layers = config, num_layers
        self.learned_rows = learned_rows if config.freeze_initial else None

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._momentums = [self.add_variable_from_reference(v, "momentum") for v in variables]
        self._velocities = [
            self.add_variable_from_reference(v, "velocity") if self.has_velocity(v) else None for v in variables
        ]
        # Determined here: on TensorFlow, `update_step` gets bare tf.Variables, which have no path.
        self._decayed = [self.config.decay_all or not NO_WEIGHT_DECAY.search(v.path) for v in variables]
        self._multipliers = [layer_multiplier(v.path, self.config.layer_decay, self.num_layers) for v in variables]
        rows = [None] * len(variables) if self.learned_rows is None else self.learned_rows
        self._frozen = [
            multiplier * (not is_frozen(v.path, self.config.freeze_layers)) * row_multiplier(v, learned)
            for v, multiplier, learned in zip(variables, self._multipliers, rows, strict=True)
        ]

    def _all_reduce_sum_gradients(self, grads_and_vars):
        """Skip Keras' own sum over the replicas, which sends 440 MB per step for BERT-base."""
        return grads_and_vars

    def update_step(self, gradient, variable, learning_rate):
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        multiplier = self._frozen[index]  # running means of what is frozen go on
        if steps := self.config.freeze_steps:
            multiplier = ops.where(self.iterations < steps, multiplier, self._multipliers[index])
        rate = multiplier * ops.cast(learning_rate, variable.dtype)
        update = self.update_of(gradient, self._momentums[index], self._velocities[index])
        if self._decayed[index]:
            update = self.rescaled(update + self.config.weight_decay * variable, variable)
        self.assign_sub(variable, rate * update)

    def has_velocity(self, variable) -> bool:
        """Return whether a variable has a `v`."""
        return True

    def update_of(self, gradient, m, v):
        """Assign this step's means to `m` and `v`, and return the update before weight decay and rate."""
        self.assign(m, self.beta_1 * m + (1.0 - self.beta_1) * gradient)
        self.assign(v, self.config.beta_2 * v + (1.0 - self.config.beta_2) * ops.square(gradient))
        return self.direction(m, v)

    def direction(self, m, v):
        """The update before weight decay and rate; `m` and `v` are this step's."""
        raise NotImplementedError

    def rescaled(self, update, variable):
        """The decayed update of a variable, before the rate."""
        return update

    def bias_correction(self, beta, dtype):
        """1 - beta^t, by `expm1`: in float32 the plain difference is off by 1.3e-5 for .999 and t = 1."""
        return -ops.expm1(math.log(beta) * ops.cast(self.iterations + 1, dtype))


class BertAdam(DecoupledAdam):
    """Adam without bias correction (optimization.py, `AdamWeightDecayOptimizer`): direction m / (sqrt(v) + epsilon).

    Without the correction the first step is 3.16 times the rate, not once; the warm-up compensates.
    """

    def direction(self, m, v):
        return m / (ops.sqrt(v) + self.config.epsilon)


class AdamW(DecoupledAdam):
    """Adam with bias correction: direction sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + epsilon).

    Epsilon is added before v is corrected, as in Keras and in fairseq's `optim/adam.py`, which trained RoBERTa (b2
    .98, epsilon 1e-6, all decayed) and SpanBERT (epsilon 1e-8); PyTorch adds it after. Keras decays all variables by
    default and has no layer-wise rates.
    """

    def direction(self, m, v):
        of_v, of_m = self.bias_correction(self.config.beta_2, v.dtype), self.bias_correction(self.beta_1, m.dtype)
        return ops.sqrt(of_v) / of_m * m / (ops.sqrt(v) + self.config.epsilon)


class LAMB(DecoupledAdam):
    """LAMB (arXiv 1904.00962, algorithm 2, phi the identity): each variable moves in proportion to its own norm.

        direction = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
        w = w - rate trust (direction + decay w);  trust = |w| / |direction + decay w|

    Trust is 1 where either norm is 0, and for variables that are not decayed, as in TensorFlow Addons' `LAMB` and
    NVIDIA's Apex `FusedLAMB`; NVIDIA's TensorFlow `LAMBOptimizer` rescales those too. Unlike Apex, a `weight_decay` of
    0 does not switch the rescaling off.
    """

    def direction(self, m, v):
        m = m / self.bias_correction(self.beta_1, m.dtype)
        return m / (ops.sqrt(v / self.bias_correction(self.config.beta_2, v.dtype)) + self.config.epsilon)

    def rescaled(self, update, variable):
        variable_norm, update_norm = (ops.sqrt(ops.sum(ops.square(x))) for x in (variable, update))
        both = ops.logical_and(variable_norm > 0, update_norm > 0)
        return ops.where(both, variable_norm / update_norm, 1.0) * update


class Muon(AdamW):
    """Muon (arXiv 2502.16982, section 2) for the matrices of the encoder layers, AdamW for all else.

        m = .95 m + .05 g;  direction = .2 sqrt(max(rows, columns)) orthogonal(.95 m + .05 g)

    `orthogonal` brings the singular values of a matrix near 1; in mixed precision in bfloat16, as the original does
    (github.com/KellerJordan/Muon, muon.py, `zeropower_via_newtonschulz5`). The factor gives the update the root mean
    square of Adam's, so rate and weight decay are AdamW's. Keras' own Muon has neither layer-wise rates nor freezing.
    """

    momentum = 0.95

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compute_dtype = keras.mixed_precision.dtype_policy().compute_dtype

    def has_velocity(self, variable):
        return not (len(variable.shape) == 2 and _ENCODER_LAYER.search(variable.path))

    def update_of(self, gradient, m, v):
        if v is not None:
            return super().update_of(gradient, m, v)
        self.assign(m, self.momentum * m + (1.0 - self.momentum) * gradient)
        ahead = self.momentum * m + (1.0 - self.momentum) * gradient  # Nesterov's
        return 0.2 * math.sqrt(max(m.shape)) * ops.cast(orthogonal(ops.cast(ahead, self.compute_dtype)), m.dtype)


def orthogonal(matrix):
    """U V^T of a matrix U S V^T, nearly: five Newton-Schulz steps bring the singular values between .68 and 1.14.

    A tall matrix is not transposed: XLA refuses the fused product of a transposed one in bfloat16 on a CPU.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix / (ops.sqrt(ops.sum(ops.square(matrix))) + 1e-7)
    for _ in range(5):
        gram = ops.matmul(ops.transpose(x), x) if is_tall else ops.matmul(x, ops.transpose(x))
        gram = -4.7750 * gram + 2.0315 * ops.matmul(gram, gram)
        x = 3.4445 * x + (ops.matmul(x, gram) if is_tall else ops.matmul(gram, x))
    return x


OPTIMIZERS = {"bert_adam": BertAdam, "adamw": AdamW, "lamb": LAMB, "muon": Muon}


def create_optimizer(config: TrainingConfig, num_layers: int, learned_rows: LearnedRows | None = None) -> DecoupledAdam:
    """The optimizer of a training run; `learned_rows`: what `config.freeze_initial` does not freeze."""
    return OPTIMIZERS[config.optimizer](config, num_layers, learned_rows)
