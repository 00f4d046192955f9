"""Phases of a training run: its examples and batch sizes, from the first step to the last.

A batch ramp from 64 to 256 over 3,000 of 900,000 steps, then 100,000 steps at another sequence length:

    steps           0 ...   1,500 ...   3,000 ...        900,000 ... 1,000,000
    batch          64       128         256              256
    examples       first    first       first            second
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from bert_keras.data.example_format import ExampleSpec, Shard, read_shards
from bert_keras.data.example_parser import Arrays, RowShapes, row_shapes
from bert_keras.data.mixture import Source
from bert_keras.data.tfrecord_batches import DynamicMasking, eval_batches, train_batches
from bert_keras.training.config import SecondPhase, TrainingConfig


class Examples(Protocol):
    """A source of batches: a stream indexed by example number, independent of its readers, and held-out batches.

    `ExampleSet` reads shards; `bert_keras.data.array_batches.ArrayExamples` holds examples in memory.
    """

    @property
    def train_examples(self) -> int:
        """Number of training rows."""

    @property
    def eval_examples(self) -> int:
        """Number of held-out rows."""

    @property
    def max_seq_length(self) -> int:
        """T, the maximum sequence length."""

    @property
    def max_predictions_per_seq(self) -> int:
        """P; 0: the objective predicts no masked tokens."""

    @property
    def row_shapes(self) -> RowShapes:
        """Shape and type of a row of a training batch, by name; None: an axis whose length differs between batches."""

    def train_batches(
        self, *, batch_size: int, first_example: int, seed: int, worker: int = 0, num_workers: int = 1
    ) -> Iterator[Arrays]:
        """Endless shuffled batches from an example on (`bert_keras.data.tfrecord_batches.train_batches`)."""

    def eval_batches(self, batch_size: int) -> Iterator[Arrays]:
        """The held-out rows once, in order."""


@dataclasses.dataclass(frozen=True, eq=False)
class ExampleSet:
    """The examples of one artifact, or of several that are mixed, in shards."""

    spec: ExampleSpec
    train_shards: list[Shard]  # of all passes over the documents
    eval_shards: list[Shard]
    dynamic_masking: DynamicMasking | None = None  # of the training examples; None if they are stored masked
    mixture: Sequence[Source] = ()  # the sources that share every batch; empty: `train_shards` are one

    @classmethod
    def load(cls, directory: str, dynamic_masking: DynamicMasking | None = None) -> "ExampleSet":
        """Read the examples of an artifact; errors as of `ExampleSpec.load` and `read_shards`."""
        spec = ExampleSpec.load(directory)
        return cls(spec, read_shards(directory, "train"), read_shards(directory, "eval"), dynamic_masking)

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

    @property
    def sources(self) -> Sequence[Source]:
        """The sources of the batches, at least one."""
        return self.mixture or [Source("", self.train_shards)]

    @property
    def row_shapes(self) -> RowShapes:
        return row_shapes(self.spec.layout.features(masked=True))

    def train_batches(self, **part: int) -> Iterator[Arrays]:
        """`bert_keras.data.tfrecord_batches.train_batches` of the sources."""
        return train_batches(self.sources, self.spec.layout, dynamic_masking=self.dynamic_masking, **part)

    def eval_batches(self, batch_size: int) -> Iterator[Arrays]:
        """`bert_keras.data.tfrecord_batches.eval_batches` of the held-out shards; the last one may be smaller."""
        files = [shard.path for shard in self.eval_shards]
        return eval_batches(files, self.spec.layout, batch_size=batch_size)


@dataclasses.dataclass(frozen=True, eq=False)
class Phase:
    """Steps with the same examples and batch size."""

    examples: Examples
    first_step: int
    end_step: int  # exclusive
    batch_size: int  # sequences per step, over all devices
    first_example: int  # number of `examples` that earlier phases read

    def examples_read(self, step: int) -> int:
        """Number of `examples` read before `step`, a step of this phase or its end."""
        return self.first_example + (step - self.first_step) * self.batch_size

    def train_batches(self, first_step: int, seed: int, worker: int = 0, num_workers: int = 1) -> Iterator[Arrays]:
        """The batches from a step on, endless: the rows of one of the workers."""
        return self.examples.train_batches(
            batch_size=self.batch_size,
            first_example=self.examples_read(first_step),
            seed=seed,
            worker=worker,
            num_workers=num_workers,
        )


class PhaseCost(NamedTuple):
    """The cost of a phase in the budget's unit: `start` is compilation and the like, then each step and evaluation."""

    batch_size: int
    max_seq_length: int
    start: float
    step: float
    evaluation: float


def phases_of(config: TrainingConfig, second: SecondPhase, examples: Sequence[Examples]) -> list[Phase]:
    """The phases of a run, in order; each has at least one step. `examples`: of the first phase and of any second."""
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
