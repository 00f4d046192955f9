"""The entry point of the fine-tuning pipeline's Trainer."""

from __future__ import annotations

import dataclasses

from tfx.components.trainer.fn_args_utils import FnArgs

from bert_keras.finetuning.finetune import finetune
from bert_keras.jobs import FinetuneJob
from components.trainer.fn_args import examples_folders, job_fields


def run_fn(fn_args: FnArgs) -> None:
    """Run `finetune`, with the Tuner's best settings if there was a search."""
    job = finetune_job(fn_args)
    if fn_args.hyperparameters:
        job = dataclasses.replace(job, training=dataclasses.replace(job.training, **fn_args.hyperparameters["values"]))
    finetune(job)


def finetune_job(fn_args: FnArgs) -> FinetuneJob:
    """The fine-tuning job of a Trainer or a Tuner."""
    (rows,) = examples_folders(fn_args)
    return FinetuneJob.from_fields({**job_fields(fn_args), "rows": rows})
