"""The pipeline of a run: the stages of its workflow, then baseline, evaluation, serving validation and push."""

from collections.abc import Sequence
from typing import Any

from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.common.resolver import Resolver
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import pusher_pb2
from tfx.types import channel, standard_artifacts

from bert_keras.jobs import FinetuneJob
from components.baseline_resolver.strategy import LatestComparableStrategy
from components.code_version import FINETUNING, code_fingerprint, weights_fingerprint
from components.evaluator import metrics, minimal_pairs, slices, task_scores, word_perplexity
from components.evaluator.component import Evaluator, Judgement
from components.pusher.component import ModelPush
from components.serving_validator.component import ServingValidator
from components.task_example_gen.component import TaskExampleGen
from pipeline import stages
from pipeline.dags.eval_gate import task_eval_config
from pipeline.dags.pretraining import Trained, pretraining_stages, trainer_of
from pipeline.recipes.finetuning import FineTuneRecipe
from pipeline.recipes.settings import Recipe
from pipeline.runs.run_dir import artifacts_dir, model_name, serving_dir, training_dir
from pipeline.runs.spec import RunSpec


def create_pipeline(spec: RunSpec, beam_pipeline_args: Sequence[str]) -> Pipeline:
    """The pipeline of a run; an equal spec is served from the cache. Without inputs the graph of nodes is the same."""
    recipe = spec.recipe
    trained = pretraining_stages(spec, recipe) if isinstance(recipe, Recipe) else _finetuning_stages(spec, recipe)
    return Pipeline(
        pipeline_name=spec.request.name,
        pipeline_root=artifacts_dir(spec.request.run_dir),
        components=[*trained.stages, *_evaluate_and_push(spec, trained)],
        enable_cache=True,
        beam_pipeline_args=list(beam_pipeline_args),
    )


def _finetuning_stages(spec: RunSpec, recipe: FineTuneRecipe) -> Trained:
    example_gen = TaskExampleGen(recipe.name, spec.inputs.rows, spec.inputs.rows_fingerprint, recipe.data)
    examples = example_gen.outputs[stages.EXAMPLES]
    initial, teacher = spec.inputs.initial_model, spec.inputs.teacher
    job = FinetuneJob(
        task=recipe.name,
        task_settings=recipe.task,
        init=initial.source if initial else "",
        init_fingerprint=initial.sha256 if initial else "",
        cased=spec.request.cased,
        teacher=teacher.source if teacher else "",
        teacher_fingerprint=teacher.sha256 if teacher else "",
        distillation=recipe.distillation,
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
    share = Judgement(recipe.row.metrics[0], recipe.gate.min_share_of_teacher) if spec.request.teacher else None
    return Trained([example_gen, trainer], trainer, examples, gate, teacher=share)


def _evaluate_and_push(spec: RunSpec, trained: Trained) -> list[BaseComponent]:
    trainer, initial = trained.trainer, trained.initial
    compared: dict[str, Any] = {"initial": initial.outputs[stages.MODEL]} if initial else {}
    baseline = Resolver(
        strategy_class=LatestComparableStrategy,
        candidate=trainer.outputs[stages.MODEL],
        model=channel.Channel(type=standard_artifacts.Model),
        model_blessing=channel.Channel(type=standard_artifacts.ModelBlessing),
        infra_blessing=channel.Channel(type=standard_artifacts.InfraBlessing),
        **compared,
    ).with_id(stages.BASELINE)
    judges = (metrics, minimal_pairs, slices, task_scores, word_perplexity)
    gate = Evaluator(
        examples=trained.examples,
        model=trainer.outputs[stages.MODEL],
        baseline_model=baseline.outputs[stages.MODEL],
        eval_config=trained.gate,
        module_path=slices.__name__,
        code=code_fingerprint(*(module.__name__ for module in judges)),
        initial_model=initial.outputs[stages.MODEL] if initial else None,
        reference_examples=trained.reference,
        forgetting=trained.forgetting,
        pairs=trained.pairs,
        model_run=trainer.outputs[stages.MODEL_RUN] if trained.teacher else None,
        teacher=trained.teacher,
    )
    validator = ServingValidator(trainer.outputs[stages.MODEL], gate.outputs[stages.BLESSING], spec.recipe.serving)
    # A changed server must miss the cache too; components do not import the server, only a command that starts one.
    validator.spec.exec_properties["server_code"] = code_fingerprint("pipeline.commands.server.serve")
    corpus: dict[str, Any] = {"decontaminated": spec.inputs.checked}
    if isinstance(spec.recipe, Recipe):
        corpus |= {"language": spec.recipe.corpus.language, "licence": spec.recipe.corpus.licence}
    if teacher := spec.inputs.teacher:
        corpus["teacher"] = {"name": model_name(teacher.source), "sha256": teacher.sha256}
    folder = pusher_pb2.PushDestination.Filesystem(base_directory=serving_dir(spec.request.run_dir))
    push = ModelPush(
        model=trainer.outputs[stages.MODEL],
        model_run=trainer.outputs[stages.MODEL_RUN],
        model_blessing=gate.outputs[stages.BLESSING],
        evaluation=gate.outputs[stages.EVALUATION],
        infra_blessing=validator.outputs[stages.BLESSING],
        push_destination=pusher_pb2.PushDestination(filesystem=folder),
        corpus=corpus,
    )
    return [baseline, gate, validator, push]
