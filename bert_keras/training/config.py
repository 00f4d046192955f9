"""Settings of training: one phase, and an optional second phase on longer sequences."""

import dataclasses
import math
import re
from typing import Annotated, Literal

from bert_keras.data.mixture import parse_numbers
from bert_keras.errors import Count, Positive, PositiveShare, ProperShare, Rule, Settings, Size, at_least
from bert_keras.training.affects import run, weights

# In the folder of a run with a budget (`bert_keras.training.budget`).
BUDGET_FILE = "budget.json"
_BUDGET = re.compile(r"(\d+(?:\.\d+)?(?:e\+?\d+)?) ?([a-z-]+)", re.IGNORECASE)
# The unit that is counted, and how many of it are one.
_BUDGET_UNITS = {
    **{"h": ("s", 3600), "min": ("s", 60), "s": ("s", 1), "flops": ("FLOPs", 1), "core-seconds": ("core-seconds", 1)},
    **{"core-hours": ("core-seconds", 3600), "core-minutes": ("core-seconds", 60)},
}


@dataclasses.dataclass(frozen=True)
class OptimizationConfig(Settings, section="training"):
    """The settings that pre-training and fine-tuning share.

    Attributes:
        train_batch_size: sequences per step, over all devices.
        learning_rate: peak rate; `schedule` says how it decays.
        schedule: `bert` decays linearly from step 0 to 0 at N, so the rate drops at the end of the warm-up
            (google-research/bert, optimization.py); `linear` decays from the peak at the end of the warm-up, `cosine`
            too, by half a cosine; `constant` stays at the peak.
        optimizer: `bert_adam`, without bias correction (optimization.py, `AdamWeightDecayOptimizer`); `adamw`, with it
            (RoBERTa, SpanBERT: fairseq, optim/adam.py); `lamb` (arXiv 1904.00962), for large batches; or `muon`
            (arXiv 2502.16982), for the matrices of the encoder layers, with `adamw` for all else.
        beta_2: decay rate per step of the running mean of the squared gradient; .98 in RoBERTa.
        epsilon: added to the root of that mean; 1e-8 in SpanBERT.
        weight_decay: decoupled decay of all weights except biases and layer normalisations.
        layer_decay: factor of the rate per layer, from the heads down to the embeddings; ELECTRA fine-tunes with .8
            or .9. 1: the same rate for all layers.
        clip_norm: maximum global norm of the gradient, which is scaled down to it.
        gradient_accumulation_steps: number of parts in which a batch is computed, one after another, to save memory;
            the result is unchanged.
        save_checkpoints_steps: steps between two checkpoints; a kill loses at most that many.
        eval_batch_size: batch size of the held-out evaluation that is logged during training, and of the predictions
            for a task's official scores.
        eval_batches: number of batches of that evaluation.
        eval_every_steps: steps between two evaluations.
        backend: `tensorflow`, or `jax`, which computes the same on GPUs and TPUs (docs/gpus.md); export, gate and
            server are TensorFlow's.
        strategy: `one_device`, `mirrored` over the devices of this machine, `multi_worker` over several machines, or
            `tpu` (`bert_keras.training.backends.devices`).
        mixed_precision: `float32`, or `mixed_bfloat16`.
        jit_compile: compile the forward and backward pass with XLA; JAX always does.
        rematerialize: compute the activations of each encoder layer again in the backward pass: less memory, a third
            more time.
        seed: seed of the initial weights, of dropout and of the order of the examples.
    """

    train_batch_size: Count = weights(256)
    learning_rate: Positive = weights(1e-4)
    schedule: Literal["bert", "linear", "cosine", "constant"] = weights("bert")
    optimizer: Literal["bert_adam", "adamw", "lamb", "muon"] = weights("bert_adam")
    beta_2: Annotated[float, Rule(lambda share: 0 < share < 1, "in (0, 1)")] = weights(0.999)
    epsilon: Positive = weights(1e-6)
    weight_decay: Annotated[float, at_least(0)] = weights(0.01)
    layer_decay: PositiveShare = weights(1.0)
    clip_norm: Positive = weights(1.0)
    gradient_accumulation_steps: Count = run(1)
    save_checkpoints_steps: Count = run(1000)
    eval_batch_size: Count = run(64)
    eval_batches: Count = run(8)
    eval_every_steps: Count = run(1000)
    backend: Literal["tensorflow", "jax"] = run("tensorflow")
    strategy: Literal["one_device", "mirrored", "multi_worker", "tpu"] = run("one_device")
    mixed_precision: Literal["float32", "mixed_bfloat16"] = weights("float32")
    jit_compile: bool = run(False)
    rematerialize: bool = run(False)
    seed: Size = weights(12345)


@dataclasses.dataclass(frozen=True)
class TrainingConfig(OptimizationConfig):
    """Settings of a pre-training.

    Attributes:
        num_train_steps: N, optimizer steps.
        num_warmup_steps: w, steps of linear warm-up from 0, at most N.
        budget: decides N in place of `num_train_steps`: wall-clock time (`2h`, `30min`, `90s`), CPU time of all threads
            (`16 core-hours`, `core-minutes`, `core-seconds`), or `1e18 FLOPs`. N is fixed once, before step 0
            (`bert_keras.training.budget`). The warm-up, the batch ramp, the frozen steps and the second phase keep
            their shares of `num_train_steps`; other intervals stay. None: no budget.
        clip: `global`: clip the sum over the devices; `per_replica`: clip each device's gradient, for the mean over
            its own part, before the sum (the original). Equal on one device.
        decay_all: weight decay of biases and layer normalisations, too (RoBERTa); `lamb` then rescales them too.
        freeze_layers: the embeddings and this many encoder layers from below keep their weights; 0: all are trained.
            The norm of the gradient counts them nevertheless.
        freeze_initial: all that the initial model has keeps its weights: only the rows of new words (in the word
            embeddings and the output bias) and drawn heads are trained.
        freeze_steps: for how many first steps the two hold; 0: for all.
        source_weights: NAME:NUMBER of each source of the examples (`--corpus NAME=GLOB`): its part of every batch,
            relative to the others', so 3 and 1 are 75 % and 25 %. Empty: by `corpus.source_power`.
        replay_share: share of every batch that is general text, where there is some (`--replay`).
        batch_ramp_from: sequences per step at the start; doubles up to `train_batch_size`. 0: no ramp.
        batch_ramp_steps: steps of that ramp, the same number for each size below `train_batch_size`. The learning rate
            does not depend on it.
        steps_per_execution: steps in one call of the compiled loop, between two updates of the progress.
        keep_checkpoint_max: number of checkpoints kept.
    """

    num_train_steps: Count = weights(1_000_000)
    num_warmup_steps: int = weights(10_000)
    budget: str | None = weights(None)
    clip: Literal["global", "per_replica"] = weights("global")
    decay_all: bool = weights(False)
    freeze_layers: Size = weights(0)
    freeze_initial: bool = weights(False)
    freeze_steps: Size = weights(0)
    source_weights: tuple[str, ...] = weights(())
    replay_share: ProperShare = weights(0.1)
    batch_ramp_from: int = weights(0)
    batch_ramp_steps: int = weights(0)
    steps_per_execution: Count = run(20)
    keep_checkpoint_max: Count = run(3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.freeze_layers and self.freeze_initial:
            raise ValueError(
                f"training.freeze_layers is {self.freeze_layers} and training.freeze_initial is on, which freezes all "
                "layers; set one of them"
            )
        if self.freeze_steps and not (self.freeze_layers or self.freeze_initial):
            raise ValueError(
                f"training.freeze_steps is {self.freeze_steps}, but nothing is frozen; set training.freeze_layers or "
                "training.freeze_initial too"
            )
        _ = self.source_numbers
        if not 0 <= self.num_warmup_steps <= self.num_train_steps:
            raise ValueError(
                f"training.num_warmup_steps is {self.num_warmup_steps}; it must be from 0 to training.num_train_steps, "
                f"{self.num_train_steps}"
            )
        _ = self.budget_limit
        ramp = self.batch_ramp_from, self.batch_ramp_steps
        if ramp != (0, 0) and min(ramp) <= 0:
            raise ValueError(
                f"training.batch_ramp_from is {ramp[0]}, training.batch_ramp_steps is {ramp[1]}; both must be above 0, "
                "or both 0"
            )
        growth = self.train_batch_size / max(1, self.batch_ramp_from)
        if self.batch_ramp_from and (growth < 2 or not math.log2(growth).is_integer()):
            raise ValueError(
                f"training.batch_ramp_from is {self.batch_ramp_from}; training.train_batch_size, "
                f"{self.train_batch_size}, must be 2, 4, 8, ... times it"
            )

    @property
    def budget_limit(self) -> tuple[float, str] | None:
        """`budget` as a number of seconds (`s`), `core-seconds` or `FLOPs`; None without one.

        ValueError: it is not a number above 0 with a known unit.
        """
        if self.budget is None:
            return None
        match = _BUDGET.fullmatch(self.budget.strip())
        unit, size = _BUDGET_UNITS.get(match[2].lower(), ("", 0)) if match else ("", 0)
        limit = float(match[1]) * size if match else 0.0
        if not 0 < limit < math.inf:
            raise ValueError(
                f"training.budget is {self.budget!r}; it must be a number above 0 with h, min or s, with core-hours, "
                "core-minutes or core-seconds, or with FLOPs, as 2h or '16 core-hours', or None"
            )
        return limit, unit

    @property
    def source_numbers(self) -> dict[str, float]:
        """`source_weights` by name. ValueError: see `bert_keras.data.mixture.parse_numbers`."""
        return parse_numbers(self.source_weights, "training.source_weights")


@dataclasses.dataclass(frozen=True)
class SecondPhase(Settings, section="second_phase"):
    """The last steps of pre-training, on longer sequences (paper, appendix A.2: 90 % of the steps at 128, then 512).

    Attributes:
        num_train_steps: number of its steps, the last ones of `training.num_train_steps`; 0: no second phase.
        train_batch_size: sequences per step, over all devices.
        max_seq_length: T of its examples, which are made from the same text as those of the first phase.
        max_predictions_per_seq: P of each sequence.
    """

    num_train_steps: Size = 0
    train_batch_size: Count = 256
    max_seq_length: int = 512
    max_predictions_per_seq: int = 77


def with_steps(training: TrainingConfig, second: SecondPhase, steps: int) -> tuple[TrainingConfig, SecondPhase]:
    """Settings with another number of steps; warm-up, ramp, frozen steps and second phase keep their shares of it."""

    def scaled(count: int) -> int:
        return max(1, round(count * steps / training.num_train_steps)) if count else 0

    changed = dataclasses.replace(
        training,
        num_train_steps=steps,
        num_warmup_steps=scaled(training.num_warmup_steps),
        batch_ramp_steps=scaled(training.batch_ramp_steps),
        freeze_steps=scaled(training.freeze_steps),
    )
    return changed, dataclasses.replace(second, num_train_steps=scaled(second.num_train_steps))
