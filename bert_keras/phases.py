"""What a training run reads, and in what batches: from its first step to its last.

A batch ramp from 64 to 256 over 3,000 of 900,000 steps, then 100,000 steps at another length:

    steps           0 ...   1,500 ...   3,000 ...        900,000 ... 1,000,000
    batch          64       128         256              256
    examples       first    first       first            second
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from bert_keras.config import SecondPhase, TrainingConfig
from bert_keras.features import ExampleSpec
from bert_keras.input_pipeline import DynamicMasking, eval_batches, train_batches

if TYPE_CHECKING:
    import tensorflow as tf


class Examples(Protocol):
    """Where batches come from: a stream indexed by example number, the same whatever reads it, and held-out batches.

    `ExampleSet` reads shards; `bert_keras.array_examples.ArrayExamples` has them in memory.
    """

    @property
    def train_examples(self) -> int:
        """Rows of the training split."""

    @property
    def eval_examples(self) -> int:
        """Held-out rows."""

    @property
    def max_seq_length(self) -> int:
        """T, the longest a sequence can be."""

    @property
    def max_predictions_per_seq(self) -> int:
        """P; 0: the objective predicts no masked tokens."""

    def train_batches(
        self,
        *,
        batch_size: int,
        first_example: int,
        seed: int,
        worker: int = 0,
        num_workers: int = 1,
        replicas: int = 1,
    ) -> tf.data.Dataset:
        """Endless shuffled batches, each a dict of [batch_size / num_workers / replicas, ...], from an example on.

        Args as those of `bert_keras.input_pipeline.train_batches`.
        """

    def eval_batches(self, batch_size: int) -> tf.data.Dataset:
        """The held-out rows once, in order."""


@dataclasses.dataclass(frozen=True, eq=False)
class ExampleSet:
    """The examples of one artifact, in shards.

    Attributes:
        spec: what they are.
        train_files, eval_files: the shards of each split.
        dynamic_masking: masks the training examples while they are read; None if they are stored masked.
    """

    spec: ExampleSpec
    train_files: list[str]
    eval_files: list[str]
    dynamic_masking: DynamicMasking | None = None

    @property
    def train_examples(self) -> int:
        return self.spec.train_examples

    @property
    def eval_examples(self) -> int:
        return self.spec.eval_examples

    @property
    def max_seq_length(self) -> int:
        return self.spec.max_seq_length

    @property
    def max_predictions_per_seq(self) -> int:
        return self.spec.max_predictions_per_seq

    def train_batches(self, **part: int) -> tf.data.Dataset:
        """`bert_keras.input_pipeline.train_batches` of the training shards."""
        return train_batches(
            self.train_files,
            self.spec.layout,
            num_examples=self.spec.train_examples,
            dynamic_masking=self.dynamic_masking,
            **part,
        )

    def eval_batches(self, batch_size: int) -> tf.data.Dataset:
        """`bert_keras.input_pipeline.eval_batches` of the held-out shards; the last one may be smaller."""
        return eval_batches(self.eval_files, self.spec.layout, batch_size=batch_size)


@dataclasses.dataclass(frozen=True, eq=False)
class Phase:
    """Steps that read the same examples in batches of one size.

    Attributes:
        examples: what is read.
        first_step, end_step: the steps, the last one not included.
        batch_size: sequences a step, over all devices.
        first_example: how many of `examples` earlier phases have read.
    """

    examples: Examples
    first_step: int
    end_step: int
    batch_size: int
    first_example: int

    def examples_read(self, step: int) -> int:
        """How many of `examples` were read before `step`, a step of this phase or its end."""
        return self.first_example + (step - self.first_step) * self.batch_size


def phases_of(config: TrainingConfig, second: SecondPhase, examples: Sequence[Examples]) -> list[Phase]:
    """The phases of a run, in order; each has at least one step.

    Args:
        config: the run, `num_train_steps` long.
        second: its last steps; of a `num_train_steps` of 0 there are none.
        examples: of the first phase and, if there is one, of the second.
    """
    end = config.num_train_steps - second.num_train_steps
    sizes, size = [config.train_batch_size], config.train_batch_size
    while config.batch_ramp_steps and size > config.batch_ramp_from:
        size //= 2
        sizes.insert(0, size)
    ramped = len(sizes) - 1
    ends = [config.batch_ramp_steps * (index + 1) // ramped for index in range(ramped)]
    phases: list[Phase] = []
    step, read = 0, 0
    for size, phase_end in zip(sizes, [*ends, end], strict=True):
        phase_end = min(phase_end, end)
        if phase_end > step:
            phases.append(Phase(examples[0], step, phase_end, size, read))
            step, read = phase_end, phases[-1].examples_read(phase_end)
    if second.num_train_steps:
        phases.append(Phase(examples[1], end, config.num_train_steps, second.train_batch_size, 0))
    return phases
