"""The fine-tuning pipeline: from a task's files to a pushed model that takes its raw text. Wiring only."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from tfx.components import Trainer
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import trainer_pb2

from bert_keras.convert.formats import format_of
from bert_keras.jobs import FinetuneJob
from components.code_version import FINETUNING, code_fingerprint, weights_fingerprint
from components.corpus_gen.inputs import fingerprint
from components.task_example_gen.archives import files_below
from components.task_example_gen.component import TaskExampleGen
from pipeline import stages
from pipeline.dags.eval_gate import task_eval_config
from pipeline.dags.evaluate_and_push import evaluate_and_push
from pipeline.recipes.finetuning import FineTuneRecipe
from pipeline.runs.run_dir import artifacts_dir, training_dir

TRAIN, EVAL = "train", "eval"


def create_pipeline(
    recipe: FineTuneRecipe,
    files: Mapping[str, Sequence[str]],
    init: str,
    cased: bool | None,
    run_dir: str,
    name: str,
    beam_pipeline_args: Sequence[str],
) -> Pipeline:
    """The pipeline of one run directory; a second run with equal arguments is served from the cache.

    Args:
        files: files of each split, from `components.task_example_gen.split_files.find_splits`.
        init: folder of the initial checkpoint, in any format that `bert-tfx convert` reads; "" gives the same graph of
            nodes.
        cased: whether the vocabulary keeps case; None: as recorded in the folder.
        run_dir: directory of artifacts, checkpoints and pushed versions.
        name: name of the pipeline in ML Metadata.
        beam_pipeline_args: runner and workers of the Evaluator.

    Raises:
        InputError: `init` has no supported model.
    """
    if init:
        format_of(init)
    example_gen = TaskExampleGen(recipe.row, files, recipe.data)
    examples = example_gen.outputs[stages.EXAMPLES]
    job = FinetuneJob(
        task=recipe.name,
        task_settings=recipe.task,
        init=os.path.abspath(init) if init else "",
        init_fingerprint=fingerprint(files_below(init)) if init else "",
        cased=cased,
        training=recipe.training,
        search=recipe.search,
        restarts=recipe.restarts,
        export=recipe.export,
        max_unknown_fraction=recipe.data.max_unknown_fraction,
        training_root=training_dir(run_dir),
        code=weights_fingerprint(FINETUNING),
        stage_code=code_fingerprint("components.trainer.finetune"),
        # TFX passes these to the entry points.
        rows="",
        output_dir="",
        logs_dir="",
    )
    trainer = Trainer(
        # Not `module_file`: it copies files without their packages, and needs pip in the environment.
        run_fn="components.trainer.finetune.run_fn",
        examples=examples,
        train_args=trainer_pb2.TrainArgs(splits=[TRAIN]),
        eval_args=trainer_pb2.EvalArgs(splits=[EVAL]),
        custom_config=dataclasses.asdict(job),
    )
    gate = task_eval_config(recipe.row, recipe.gate, recipe.slices)
    return Pipeline(
        pipeline_name=name,
        pipeline_root=artifacts_dir(run_dir),
        components=[
            example_gen,
            trainer,
            *evaluate_and_push(trainer, examples, gate, recipe.serving, run_dir),
        ],
        enable_cache=True,
        beam_pipeline_args=list(beam_pipeline_args),
    )
