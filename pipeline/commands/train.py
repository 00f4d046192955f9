"""`bert-tfx train`: only the training, on existing examples, on one machine or several."""

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Annotated

import typer
from etils import epath

from bert_keras.errors import InputError
from bert_keras.files import check_no_pattern, locked
from pipeline.commands.options import Cased, Init, Settings, Teacher
from pipeline.runs.run_dir import temporary_run_dir

if TYPE_CHECKING:
    from bert_keras.jobs import PretrainJob

# Others of `examples` and `vocabulary` must suit the model, and are compared with it.
_OF_OTHER_STAGES = ("corpus.", "examples.masking.", "data.", "gate.", "serving.")


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="Recipe of the model and the training.")],
    examples: Annotated[
        list[str],
        typer.Option(
            "--examples",
            metavar="DIR",
            help="Output of `bert-tfx examples`; repeatable: folders of one length are mixed as sources, the longer "
            "ones are the second phase's.",
        ),
    ],
    output: Annotated[str, typer.Option(metavar="DIR", help="Output: model/, logs/, and checkpoints in training/.")],
    settings: Settings = None,
    init: Init = None,
    cased: Cased = None,
    teacher: Teacher = None,
) -> None:
    """Train on existing examples, without TFX, gate and push. The same command resumes.

    On several machines (docs/gpus.md): the same command on each, with `--set training.strategy=multi_worker`. Exit
    code 4: stopped by SIGTERM, a checkpoint is written. The examples determine the size of the vocabulary.
    """
    from bert_keras.data.example_format import EXAMPLE_SPEC_FILE, ExampleSpec
    from pipeline.recipes.initial_model import with_initial_model
    from pipeline.recipes.pretraining import recipe_of

    for setting in settings or []:
        if setting.strip().startswith(_OF_OTHER_STAGES):
            raise InputError(f"--set {setting}: `train` has the examples as they are, and no gate; leave it out")
    chosen = with_initial_model(recipe_of(recipe), init, cased, settings or [])
    for directory in examples:
        if not epath.Path(directory, EXAMPLE_SPEC_FILE).exists():
            raise InputError(f"{directory} has no {EXAMPLE_SPEC_FILE}; give the output of `bert-tfx examples`")

    if len({*examples}) < len(examples):
        raise InputError("--examples: one folder is given twice; give each once")
    lengths = sorted({ExampleSpec.load(directory).max_seq_length for directory in examples})
    if len(lengths) != len(chosen.example_sets):
        raise InputError(
            f"--examples of {' and '.join(map(str, lengths))} tokens for {len(chosen.example_sets)} phase(s): give "
            "those of each phase, or change second_phase.num_train_steps, which is "
            f"{chosen.second_phase.num_train_steps}"
        )

    from bert_keras.jobs import PretrainJob
    from bert_keras.pretraining import pretrain
    from components.code_version import PRETRAINING, weights_fingerprint

    job = PretrainJob(
        examples=tuple(examples),
        model=dataclasses.replace(chosen.model, vocab_size=ExampleSpec.load(examples[0]).vocab_size),
        training=chosen.training,
        second_phase=chosen.second_phase,
        pretraining=chosen.pretraining,
        export=chosen.export,
        output_dir=os.path.join(output, "model"),
        logs_dir=os.path.join(output, "logs"),
        training_root=os.path.join(output, "training"),
        code=weights_fingerprint(PRETRAINING),
    )
    # Workers share the folder, and an object store has no locks.
    shared = "://" in output or chosen.training.strategy == "multi_worker"
    with contextlib.ExitStack() as training:
        if shared:
            check_no_pattern(output, "give another --output")
        else:
            training.enter_context(temporary_run_dir(output, "--output"))
            training.enter_context(locked(output, "--output"))
        if init:
            job = dataclasses.replace(job, init=_initial_model(job, init, cased, os.path.join(output, "initial_model")))
        if teacher:
            job = dataclasses.replace(job, teacher=teacher, distillation=chosen.distillation)
        pretrain(job)


def _initial_model(job: "PretrainJob", init: str, cased: bool | None, root: str) -> str:
    """The folder of the exported initial model below `root`; an interrupted command finds it again."""
    from bert_keras.data.example_format import EXAMPLE_SPEC_FILE
    from bert_keras.pretraining import LEARNED_ROWS_FILE
    from bert_keras.training.checkpoint_dir import run_folder
    from components.code_version import code_fingerprint
    from components.trainer.initial_model import export_initial_model

    if job.training.strategy == "multi_worker":
        raise InputError(
            "--init with training.strategy=multi_worker: `bert-tfx pretrain --init` can do it, train cannot"
        )
    depends_on = {
        "model": dataclasses.asdict(job.model),
        "pretraining": dataclasses.asdict(job.pretraining),
        "seed": job.training.seed,
        "cased": cased,
        "code": code_fingerprint("components.trainer.initial_model"),
    }
    folder = run_folder(root, depends_on, [init, *(os.path.join(path, EXAMPLE_SPEC_FILE) for path in job.examples)])
    # Written last: a folder without it is of an interrupted command.
    if not epath.Path(folder, LEARNED_ROWS_FILE).exists():
        weights = export_initial_model(dataclasses.replace(job, output_dir=folder), init, cased)
        typer.echo(f"initial model {init}: {weights}")
    return folder
