"""The entry point of the pre-training pipeline's Trainer."""

from tfx.components.trainer.fn_args_utils import FnArgs

from bert_keras.jobs import PretrainJob
from bert_keras.pretraining import pretrain
from components.trainer.fn_args import examples_folders, job_fields


def run_fn(fn_args: FnArgs) -> None:
    """Run `pretrain`, from the initial model if there is one."""
    given = {"examples": examples_folders(fn_args), "init": fn_args.base_model or ""}
    pretrain(PretrainJob.from_fields({**job_fields(fn_args), **given}))
