"""What a run is asked for, as plain data: the step that compiles a pipeline writes it, all later steps read it.

RUN_DIR/compiled/RUN_ID.json     the request; it holds no credentials
RUN_DIR/compiled/RUN_ID.pbtxt    the pipeline in TFX's intermediate representation, as text
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
import re
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from bert_keras.errors import InputError
from pipeline.run_dir import compiled_dir, metadata_file

if TYPE_CHECKING:
    from pipeline.config import Recipe
    from pipeline.finetune_recipes import FineTuneRecipe

PRETRAIN, FINETUNE = "bert-pretrain", "bert-finetune"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,199}")


@dataclasses.dataclass(frozen=True)
class RunRequest:
    """A pre-training or a fine-tuning of one run directory.

    Attributes:
        recipe: a recipe of pre-training, or a task.
        run_dir: absolute; where everything of the run lies, seen by all its steps.
        settings: `section.field=value`, as `--set` takes them.
        corpus: of pre-training: files, folders or globs of text; none: the docstrings of the installed libraries.
        vocab: of pre-training: a vocabulary to use; None: it is learned.
        data: of fine-tuning: the task's official folder.
        train: of fine-tuning: training rows in place of `data`.
        held_out: of fine-tuning: rows to judge on.
        test: of fine-tuning: rows to answer.
        init: of fine-tuning: the model to begin with.
        cased: of fine-tuning: whether the vocabulary keeps case; None: as `init` says.
        name: the pipeline's, by which ML Metadata tells it from others; empty: `bert-pretrain` or `bert-finetune`.
        metadata: where ML Metadata lies, as `pipeline.metadata_store` takes it; empty: a file in the run directory.
        beam_args: runner and workers of the stages of Beam; none: this machine's.
    """

    recipe: str
    run_dir: str
    settings: tuple[str, ...] = ()
    corpus: tuple[str, ...] = ()
    vocab: str | None = None
    data: str | None = None
    train: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    init: str | None = None
    cased: bool | None = None
    name: str = ""
    metadata: str = ""
    beam_args: tuple[str, ...] = ()

    @property
    def pretrains(self) -> bool:
        """Whether `recipe` is one of pre-training."""
        from pipeline.recipes import RECIPES

        return self.recipe in RECIPES

    @functools.cached_property
    def resolved(self) -> Recipe | FineTuneRecipe:
        """The recipe with its settings.

        Raises:
            InputError: there is no such recipe or task, or a setting cannot be used.
        """
        from pipeline.config import with_settings
        from pipeline.finetune_recipes import finetuning
        from pipeline.recipes import recipe_of

        return with_settings((recipe_of if self.pretrains else finetuning)(self.recipe), self.settings)

    @property
    def pipeline_name(self) -> str:
        """By which ML Metadata tells this pipeline from others."""
        return self.name or (PRETRAIN if self.pretrains else FINETUNE)

    @property
    def metadata_uri(self) -> str:
        """Where ML Metadata lies."""
        return self.metadata or f"sqlite:{metadata_file(self.run_dir)}"

    def run_name(self, run_id: str) -> str:
        """A run's name in ML Metadata: two pipelines may have runs of the same id."""
        return f"{self.pipeline_name}.{run_id}"

    def write(self, run_id: str) -> None:
        """Writes it for the later steps of the run."""
        from components.shards import write_json

        os.makedirs(compiled_dir(self.run_dir), exist_ok=True)
        write_json(_path(self.run_dir, run_id, "json"), dataclasses.asdict(self))

    @classmethod
    def read(cls, run_dir: str, run_id: str) -> RunRequest:
        """What a run was asked for.

        Raises:
            InputError: no such run has been compiled there.
        """
        path = _path(run_dir, run_id, "json")
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError as error:
            raise InputError(
                f"{path}: no such file; `bert-tfx compile nodes` with this --run-dir and --run-id makes it"
            ) from error
        return TypeAdapter(cls).validate_json(text)


def intermediate_representation(run_dir: str, run_id: str) -> str:
    """The file of a run's compiled pipeline."""
    return _path(run_dir, run_id, "pbtxt")


def run_ids(run_dir: str) -> list[str]:
    """The runs that were compiled in a run directory, newest first."""
    paths = glob.glob(os.path.join(glob.escape(compiled_dir(run_dir)), "*.json"))
    newest_first = sorted(paths, key=lambda path: (os.stat(path).st_mtime_ns, path), reverse=True)
    return [os.path.basename(path).removesuffix(".json") for path in newest_first]


def _path(run_dir: str, run_id: str, suffix: str) -> str:
    if not _RUN_ID.fullmatch(run_id):
        raise InputError(f"--run-id {run_id!r}: must be letters, digits, . _ : + -, at most 200, the first no sign")
    return os.path.join(compiled_dir(run_dir), f"{run_id}.{suffix}")
