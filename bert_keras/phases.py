"""What a training run reads, and in what batches: from its first step to its last.

A batch ramp from 64 to 256 over 3,000 of 900,000 steps, then 100,000 steps at another length:

    steps           0 ...   1,500 ...   3,000 ...        900,000 ... 1,000,000
    batch          64       128         256              256
    examples       first    first       first            second
"""

from __future__ import annotations

import dataclasses

from bert_keras.config import SecondPhase, TrainingConfig
from bert_keras.features import ExampleSpec
from bert_keras.input_pipeline import DynamicMasking


@dataclasses.dataclass(frozen=True, eq=False)
class ExampleSet:
    """The examples of one artifact.

    Attributes:
        spec: what they are.
        train_files, eval_files: the shards of each split.
        dynamic_masking: masks the training examples while they are read; None if they are stored masked.
    """

    spec: ExampleSpec
    train_files: list[str]
    eval_files: list[str]
    dynamic_masking: DynamicMasking | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Phase:
    """Steps that read the same examples in batches of one size.

    Attributes:
        examples: what is read.
        first_step, end_step: the steps, the last one not included.
        batch_size: sequences a step, over all devices.
        first_example: how many of `examples` earlier phases have read.
    """

    examples: ExampleSet
    first_step: int
    end_step: int
    batch_size: int
    first_example: int

    def examples_read(self, step: int) -> int:
        """How many of `examples` were read before `step`, a step of this phase or its end."""
        return self.first_example + (step - self.first_step) * self.batch_size


def phases_of(config: TrainingConfig, second: SecondPhase, examples: list[ExampleSet]) -> list[Phase]:
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
