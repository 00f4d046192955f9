"""Fields of TFX's FnArgs that all jobs share."""

import os
from collections.abc import Mapping
from typing import Any

from tfx.components.trainer.fn_args_utils import FnArgs


def job_fields(fn_args: FnArgs) -> Mapping[str, Any]:
    """The fields of the job in `custom_config`, with the Trainer's output folders."""
    return {**fn_args.custom_config, "output_dir": fn_args.serving_model_dir, "logs_dir": fn_args.model_run_dir}


def examples_folders(fn_args: FnArgs) -> list[str]:
    """The folders of the Examples artifacts; `train_files` are patterns like FOLDER/Split-train/*."""
    return [os.path.dirname(os.path.dirname(pattern)) for pattern in fn_args.train_files]
