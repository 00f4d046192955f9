"""Workflow of a fine-tuning: a task's files and a pre-trained model to a pushed model that takes raw text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.errors import InputError
from bert_keras.notices import notify
from pipeline.runs.request import RunRequest

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline

    from pipeline.recipes.finetuning import FineTuneRecipe
    from pipeline.runs.lineage import Run

# The files of each split.
Inputs = dict[str, list[str]]


class FineTuneWorkflow:
    """The `Workflow` of the tasks (`bert_keras.tasks.table`)."""

    name = "finetune"
    inputs: tuple[str, ...] = ("data", "train", "held_out", "test", "init", "cased")
    tuned: Mapping[str, str] = {"num_train_epochs": "training.num_train_epochs", "min_score": "gate.min_score"}

    def find_inputs(self, request: RunRequest) -> Inputs:
        from apache_beam.io.filesystems import FileSystems
        from apache_beam.options.pipeline_options import PipelineOptions

        from bert_keras.convert.formats import format_of
        from components.task_example_gen.split_files import find_splits
        from pipeline.runs.corpus_checks import leak_warning

        recipe: Any = request.resolved
        if request.init is None:
            raise InputError(f"{request.recipe}: give the initial checkpoint, --init DIR")
        try:
            format_of(request.init)
        except InputError as error:
            from pipeline.runs.served_versions import hint_at_version

            raise hint_at_version(error, request.init) from None
        FileSystems.set_options(PipelineOptions(list(request.beam_args)))
        given = {"train": request.train, "eval": request.held_out, "test": request.test}
        splits = find_splits(recipe.row, request.data, given)
        if line := leak_warning(request.init, splits):
            notify(line)
        return splits

    def parameters(self, request: RunRequest) -> dict[str, Any]:
        return {"init": request.init, **({} if request.train else {"data": request.data})}

    def create_pipeline(self, request: RunRequest, inputs: Inputs | None, beam_args: Sequence[str]) -> Pipeline:
        from pipeline.dags.finetune import create_pipeline

        recipe: Any = request.resolved
        init = "" if inputs is None else request.init or ""
        rest = request.run_dir, request.pipeline_name, beam_args
        return create_pipeline(recipe, inputs or {}, init, request.cased, *rest)

    def summarize(self, run: Run, recipe: FineTuneRecipe, run_dir: str) -> dict[str, Any]:
        from pipeline.summaries.task import summarize

        return summarize(run, recipe, run_dir)

    def print_summary(self, summary: dict[str, Any], run_dir: str) -> None:
        from pipeline.summaries.task import print_summary

        print_summary(summary, run_dir)

    def render(self, run: Run, summary: Mapping[str, Any], run_dir: str, baseline: Mapping[str, float] | None) -> str:
        from pipeline.report.task_page import render

        return render(run, summary, run_dir, baseline)
