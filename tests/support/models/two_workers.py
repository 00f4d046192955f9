"""One of two workers that train together, in a separate process: python -m ... EXAMPLES OUT.

TF_CONFIG says which it is. Writes OUT/clipped.npz (what one step of gradient descent, clipped per replica, took off the
weights) and OUT/budget, prints the steps that fit into a budget, then trains in OUT/curve until SIGTERM, and exits with
the code 4.
"""

import dataclasses
import functools
import sys
from pathlib import Path

import keras
import numpy as np

from bert_keras.errors import Preempted
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import mlm_nsp
from bert_keras.training import budget as budget_module
from bert_keras.training.backends.opening import open_devices
from bert_keras.training.budget import Budget
from bert_keras.training.config import SecondPhase, TrainingConfig
from bert_keras.training.loop import TrainingLoop
from bert_keras.training.phases import ExampleSet, phases_of
from tests.support.models.small_training import QUIET, RUN, Descent, built

# The rate is low: at a constant rate of 5e-3 rounding grows to hundredths in 50 steps.
TWENTY = dataclasses.replace(
    RUN,
    schedule="constant",
    learning_rate=1e-3,
    num_train_steps=20,
    steps_per_execution=5,
    eval_every_steps=20,
    save_checkpoints_steps=20,
)
# The same steps, and others after them.
ENDLESS = dict.fromkeys(("num_train_steps", "save_checkpoints_steps"), 1_000_000)
CLIP_NORM = 0.25


def make_loop(examples: Path, directory: Path, config: TrainingConfig, devices=None) -> TrainingLoop:
    phases = phases_of(config, SecondPhase(), [ExampleSet.load(str(examples))])
    create_model = functools.partial(built, BertForPreTraining, QUIET, seed=config.seed)
    return TrainingLoop(create_model, mlm_nsp.OBJECTIVE, config, phases, str(directory), devices)


def main() -> None:
    examples, out = map(Path, sys.argv[1:])
    config = dataclasses.replace(TWENTY, strategy="multi_worker", backend=keras.backend.backend())
    devices = open_devices(config)
    assert (devices.replicas, devices.workers) == (2, 2)

    clipped = dataclasses.replace(config, clip="per_replica", clip_norm=CLIP_NORM, budget="300s")
    loop = make_loop(examples, out / "none", clipped, devices)
    with devices.scope():
        sgd = Descent(1.0)
        sgd.build(loop.model.trainable_variables)
    before = loop.model.get_weights()
    steps = devices.train_steps(loop.model, sgd, loop.objective, clipped)
    steps(steps.feed(loop.phases[0], 0), 1)
    if devices.worker == 0:
        np.savez(out / "clipped.npz", *[old - new for old, new in zip(before, steps.model.get_weights(), strict=True)])

    def measured(training, _, folder):
        loop = make_loop(examples, Path(folder), training, devices)
        loop.steps = steps  # they are compiled already
        return loop

    budget_module._SHARE = 0.0  # the fewest steps are measured
    budget = Budget(str(out / "budget"), clipped, SecondPhase(), [ExampleSet.load(str(examples))], devices)
    fixed, _ = budget.fix(measured)
    print(f"fixed {fixed.num_train_steps}", flush=True)

    try:
        make_loop(examples, out / "curve", dataclasses.replace(config, **ENDLESS), devices).run()
    except Preempted as error:
        print(error, flush=True)
        sys.exit(4)


if __name__ == "__main__":
    main()
