"""The entry point of the fine-tuning pipeline's Tuner."""

from __future__ import annotations

from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.components.tuner.component import TunerFnResult

from bert_keras.finetuning.search import create_tuner
from components.trainer.finetune import finetune_job


def tuner_fn(fn_args: FnArgs) -> TunerFnResult:
    """The search of a job, which TFX runs."""
    return TunerFnResult(tuner=create_tuner(finetune_job(fn_args), fn_args.working_dir), fit_kwargs={})
