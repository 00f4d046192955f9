"""`bert-tfx train`: training alone, on examples that are there already, on one machine or several."""

from __future__ import annotations

import dataclasses
import os
import types
from typing import Annotated

import typer

from bert_keras.errors import InputError
from pipeline.options import Settings


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="Whose model and training settings are taken.")],
    examples: Annotated[
        list[str],
        typer.Option(
            "--examples",
            metavar="DIR",
            help="What `bert-tfx examples` wrote, or an artifact of PretrainExampleGen; of a recipe with a second "
            "phase, a second time for its longer ones.",
        ),
    ],
    output: Annotated[
        str, typer.Option(metavar="DIR", help="Gets model/, logs/ and, while it trains, checkpoints in training/.")
    ],
    settings: Settings = None,
) -> None:
    """Examples to an exported model, without TFX, gate and push. The same command again goes on where it was.

    On several machines: the same command on each, with folders that all of them see, `--set
    training.strategy=multi_worker`, and TF_CONFIG in the environment. Exit code 4: stopped by SIGTERM, its checkpoint
    is written. The size of the vocabulary is that of the examples.
    """
    import tensorflow as tf

    from bert_keras.features import EXAMPLE_SPEC_FILE, ExampleSpec
    from pipeline.config import with_settings
    from pipeline.recipes import recipe_of

    chosen = with_settings(recipe_of(recipe), settings or [])
    if len(examples) != len(chosen.example_sets):
        raise InputError(
            f"{len(examples)} --examples for {len(chosen.example_sets)} phase(s): give those of each phase, or "
            f"change second_phase.num_train_steps, which is {chosen.second_phase.num_train_steps}"
        )
    for directory in examples:
        if not tf.io.gfile.exists(os.path.join(directory, EXAMPLE_SPEC_FILE)):
            raise InputError(f"{directory} has no {EXAMPLE_SPEC_FILE}; --examples takes what `bert-tfx examples` wrote")

    from bert_keras.pretrain import run_fn

    model = dataclasses.replace(chosen.model, vocab_size=ExampleSpec.load(examples[0]).vocab_size)
    run_fn(
        types.SimpleNamespace(
            train_files=[os.path.join(directory, "Split-train", "*") for directory in examples],
            eval_files=[os.path.join(directory, "Split-eval", "*") for directory in examples],
            serving_model_dir=os.path.join(output, "model"),
            model_run_dir=os.path.join(output, "logs"),
            custom_config={
                "model": dataclasses.asdict(model),
                "training": dataclasses.asdict(chosen.training),
                "second_phase": dataclasses.asdict(chosen.second_phase),
                "pretraining": dataclasses.asdict(chosen.pretraining),
                "training_root": os.path.join(output, "training"),
            },
        )
    )
