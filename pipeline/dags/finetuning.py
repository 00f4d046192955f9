"""The stages of fine-tuning: from a task's files to a model that takes its raw text. Wiring only."""

from __future__ import annotations

from bert_keras.jobs import FinetuneJob
from components.code_version import FINETUNING, code_fingerprint, weights_fingerprint
from components.task_example_gen.component import TaskExampleGen
from pipeline import stages
from pipeline.dags.eval_gate import task_eval_config
from pipeline.dags.trained import Trained, trainer_of
from pipeline.recipes.finetuning import FineTuneRecipe
from pipeline.runs.run_dir import training_dir
from pipeline.runs.spec import RunSpec


def finetuning_stages(spec: RunSpec, recipe: FineTuneRecipe) -> Trained:
    """The stages up to the Trainer, of the task `recipe`."""
    example_gen = TaskExampleGen(recipe.name, spec.inputs.rows, spec.inputs.rows_fingerprint, recipe.data)
    examples = example_gen.outputs[stages.EXAMPLES]
    initial = spec.inputs.initial_model
    job = FinetuneJob(
        task=recipe.name,
        task_settings=recipe.task,
        init=initial.source if initial else "",
        init_fingerprint=initial.sha256 if initial else "",
        cased=spec.request.cased,
        training=recipe.training,
        search=recipe.search,
        restarts=recipe.restarts,
        export=recipe.export,
        max_unknown_fraction=recipe.data.max_unknown_fraction,
        training_root=training_dir(spec.request.run_dir),
        code=weights_fingerprint(FINETUNING),
        stage_code=code_fingerprint("components.trainer.finetune"),
        # TFX passes these to the entry points.
        rows="",
        output_dir="",
        logs_dir="",
    )
    trainer = trainer_of("components.trainer.finetune", job, examples)
    gate = task_eval_config(recipe.row, recipe.gate, recipe.slices)
    return Trained([example_gen, trainer], trainer, examples, gate)
