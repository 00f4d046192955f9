"""The fine-tuning pipeline: from a task's files to a pushed model that takes its raw text. Wiring only."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from tfx.components import Trainer, Tuner
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import trainer_pb2

import bert_keras
from bert_keras.interchange.any_format import format_of
from components.code_version import code_fingerprint
from components.corpus_gen.inputs import fingerprint
from components.task_example_gen.component import TaskExampleGen
from components.task_example_gen.sources import files_below
from pipeline.eval_gate import task_eval_config
from pipeline.finetune_recipes import FineTuneRecipe
from pipeline.judge_and_push import judge_and_push
from pipeline.run_dir import artifacts_dir, training_dir

TRAIN, EVAL = "train", "eval"


@dataclasses.dataclass(frozen=True)
class Beginning:
    """A model to be fine-tuned.

    Attributes:
        init: its folder, in any format that can be read.
        init_fingerprint: a hash of its files: another model is never served from the cache.
        cased: whether its vocabulary keeps case; None: as the folder says.
    """

    init: str
    init_fingerprint: str
    cased: bool | None = None

    @classmethod
    def of(cls, directory: str, cased: bool | None) -> Beginning:
        """The model of a folder.

        Raises:
            InputError: there is none that can be read.
        """
        format_of(directory)
        return cls(os.path.abspath(directory), fingerprint(files_below(directory)), cased)


def create_pipeline(
    recipe: FineTuneRecipe,
    files: Mapping[str, Sequence[str]],
    begin: Beginning,
    run_dir: str,
    name: str,
    beam_pipeline_args: Sequence[str],
) -> Pipeline:
    """The pipeline of one run directory; a second run with the same arguments is served from the cache.

    Args:
        recipe: what to make.
        files: of each split, as `components.task_example_gen.files.find_splits` gives them.
        begin: the model to begin with.
        run_dir: where artifacts, checkpoints and pushed versions live.
        name: by which ML Metadata tells the pipeline from others.
        beam_pipeline_args: runner and workers of the Evaluator.
    """
    example_gen = TaskExampleGen(recipe.row, files, recipe.data)
    examples = example_gen.outputs["examples"]
    splits = {
        "train_args": trainer_pb2.TrainArgs(splits=[TRAIN]),
        "eval_args": trainer_pb2.EvalArgs(splits=[EVAL]),
    }
    custom_config = {
        "task": recipe.name,
        "task_settings": dataclasses.asdict(recipe.task),
        "training": dataclasses.asdict(recipe.training),
        **dataclasses.asdict(begin),
        "training_root": training_dir(run_dir),
        "code": code_fingerprint(bert_keras),
    }
    tuner = None
    if recipe.search.enabled:
        tuner = Tuner(
            tuner_fn="bert_keras.tasks.search.tuner_fn",
            examples=examples,
            **splits,
            custom_config={**custom_config, "search": dataclasses.asdict(recipe.search)},
        )
    trainer = Trainer(
        # Not `module_file`: that packs files flat, and needs pip in the environment.
        run_fn="bert_keras.finetune.run_fn",
        examples=examples,
        hyperparameters=tuner.outputs["best_hyperparameters"] if tuner else None,
        **splits,
        custom_config={
            **custom_config,
            "restarts": dataclasses.asdict(recipe.restarts),
            "export": dataclasses.asdict(recipe.export),
        },
    )
    gate = task_eval_config(recipe.row, recipe.gate, recipe.slices)
    return Pipeline(
        pipeline_name=name,
        pipeline_root=artifacts_dir(run_dir),
        components=[
            example_gen,
            *([tuner] if tuner else []),
            trainer,
            *judge_and_push(trainer, examples, gate, recipe.serving, run_dir),
        ],
        enable_cache=True,
        beam_pipeline_args=list(beam_pipeline_args),
    )
