"""The entry point of the fine-tuning pipeline's Trainer."""

from tfx.components.trainer.fn_args_utils import FnArgs

from bert_keras.finetuning.finetune import finetune
from bert_keras.jobs import FinetuneJob
from components.trainer.fn_args import examples_folders, job_fields


def run_fn(fn_args: FnArgs) -> None:
    """Run `finetune`."""
    (rows,) = examples_folders(fn_args)
    finetune(FinetuneJob.from_fields({**job_fields(fn_args), "rows": rows}))
