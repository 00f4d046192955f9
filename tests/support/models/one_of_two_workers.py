"""One of two workers that train together, in a separate process: python one_of_two_workers.py EXAMPLES OUT.

TF_CONFIG says which it is. Writes OUT/curve (50 steps), OUT/clipped.npz (what one step of gradient descent, clipped per
replica, took off the weights) and OUT/budget, prints the steps that fit into a budget, then trains in OUT/stopped until
SIGTERM, and exits with the code 4.
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

FIFTY = dataclasses.replace(
    RUN, num_train_steps=50, steps_per_execution=5, eval_every_steps=50, save_checkpoints_steps=25
)
CLIP_NORM = 0.25


def make_loop(examples: Path, directory: Path, config: TrainingConfig, devices=None) -> TrainingLoop:
    phases = phases_of(config, SecondPhase(), [ExampleSet.load(str(examples))])
    create_model = functools.partial(built, BertForPreTraining, QUIET, seed=config.seed)
    return TrainingLoop(create_model, mlm_nsp.OBJECTIVE, config, phases, str(directory), devices)


def main() -> None:
    examples, out = map(Path, sys.argv[1:])
    config = dataclasses.replace(FIFTY, strategy="multi_worker", backend=keras.backend.backend())
    devices = open_devices(config)
    assert (devices.replicas, devices.workers) == (2, 2)
    make_loop(examples, out / "curve", config, devices).run()

    loop = make_loop(
        examples, out / "none", dataclasses.replace(config, clip="per_replica", clip_norm=CLIP_NORM), devices
    )
    with devices.scope():
        sgd = Descent(1.0)
        sgd.build(loop.model.trainable_variables)
    before = loop.model.get_weights()
    steps = devices.train_steps(loop.model, sgd, loop.objective, loop.config)
    steps(steps.feed(loop.phases[0], 0), 1)
    if devices.worker == 0:
        np.savez(out / "clipped.npz", *[old - new for old, new in zip(before, steps.model.get_weights(), strict=True)])

    read = [ExampleSet.load(str(examples))]
    limited = dataclasses.replace(config, budget="300s")
    budget_module._SHARE = 0.0  # the fewest steps are measured
    budget = Budget(str(out / "budget"), limited, SecondPhase(), read, devices)
    fixed, _ = budget.fix(lambda training, _, folder: make_loop(examples, Path(folder), training, devices))
    print(f"fixed {fixed.num_train_steps}", flush=True)

    endless = dataclasses.replace(config, num_train_steps=1_000_000, eval_every_steps=1_000_000)
    try:
        make_loop(examples, out / "stopped", endless, devices).run()
    except Preempted as error:
        print(error, flush=True)
        sys.exit(4)


if __name__ == "__main__":
    main()
