"""One of two workers that train together, in a process of its own: python one_of_two_workers.py EXAMPLES OUT.

TF_CONFIG says which it is. Writes OUT/curve (50 steps), OUT/clipped.npz (what one step of gradient descent, clipped per
replica, took off the weights), then trains in OUT/stopped until SIGTERM, and exits with the code 4.
"""

import dataclasses
import functools
import sys
from pathlib import Path

import keras
import numpy as np
from test_training_loop import QUIET, RUN, built

from bert_keras.config import SecondPhase, TrainingConfig
from bert_keras.errors import Preempted
from bert_keras.features import ExampleSpec
from bert_keras.heads import BertForPreTraining
from bert_keras.input_pipeline import shard_files
from bert_keras.objectives import mlm_nsp
from bert_keras.phases import ExampleSet, phases_of
from bert_keras.strategy import create_strategy, worker_number
from bert_keras.train_step import TrainSteps
from bert_keras.training_loop import TrainingLoop

FIFTY = dataclasses.replace(
    RUN, num_train_steps=50, steps_per_execution=5, eval_every_steps=50, save_checkpoints_steps=25
)
CLIP_NORM = 0.25


def make_loop(examples: Path, directory: Path, config: TrainingConfig, strategy=None) -> TrainingLoop:
    shards = [shard_files(f"{examples}/Split-{split}/*") for split in ("train", "eval")]
    phases = phases_of(config, SecondPhase(), [ExampleSet(ExampleSpec.load(str(examples)), *shards)])
    create_model = functools.partial(built, BertForPreTraining, QUIET, seed=config.seed)
    return TrainingLoop(create_model, mlm_nsp.OBJECTIVE, config, phases, str(directory), strategy)


def main() -> None:
    examples, out = map(Path, sys.argv[1:])
    config = dataclasses.replace(FIFTY, strategy="multi_worker")
    strategy = create_strategy(config)
    assert strategy.num_replicas_in_sync == 2
    make_loop(examples, out / "curve", config, strategy).run()

    loop = make_loop(
        examples, out / "none", dataclasses.replace(config, clip="per_replica", clip_norm=CLIP_NORM), strategy
    )
    with strategy.scope():
        sgd = keras.optimizers.SGD(1.0)
        sgd.build(loop.model.trainable_variables)
    before = loop.model.get_weights()
    steps = TrainSteps(loop.model, sgd, loop.objective, loop.step, strategy, loop.config)
    steps(iter(loop._batches(loop.phases[0], 0)), 1)
    if worker_number(strategy) == 0:
        np.savez(out / "clipped.npz", *[old - new for old, new in zip(before, loop.model.get_weights(), strict=True)])

    endless = dataclasses.replace(config, num_train_steps=1_000_000, eval_every_steps=1_000_000)
    try:
        make_loop(examples, out / "stopped", endless, strategy).run()
    except Preempted as error:
        print(error, flush=True)
        sys.exit(4)


if __name__ == "__main__":
    main()
