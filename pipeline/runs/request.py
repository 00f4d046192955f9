"""The parameters of a run. `compile nodes` writes them; every later step reads them.

RUN_DIR/compiled/RUN_ID.json     the request, and the recipe with its settings as resolved then; without credentials
RUN_DIR/compiled/RUN_ID.pbtxt    the pipeline in TFX's intermediate representation, as text
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import json
import os
import re
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import TypeAdapter

from bert_keras.errors import InputError
from pipeline.runs.options import CASED_OPTION, INIT_OPTION, LATEST, SET_OPTION, VOCAB_OPTION
from pipeline.runs.run_dir import compiled_dir, metadata_file, serving_dir

if TYPE_CHECKING:
    from pipeline.recipes.finetuning import FineTuneRecipe
    from pipeline.recipes.settings import Recipe

_RESOLVED = "resolved"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,199}")


@dataclasses.dataclass(frozen=True)
class RunRequest:
    """A pre-training or a fine-tuning in a run directory. The fields with help are also options of the commands.

    Attributes:
        recipe: a recipe of pre-training, or a task.
        run_dir: absolute path of the run directory, shared by all steps.
        beam_args: runner and workers of the Beam stages; none: this machine's.
        latest: the version that `--init latest` stands for in this run; "": another `--init`.
    """

    recipe: str
    run_dir: str
    corpus: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="PATH_OR_GLOB",
            help="Text: file, folder or quoted glob; NAME=GLOB names a source; repeatable. Default: docstrings.",
        ),
    ] = ()
    reference_corpus: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="PATH_OR_GLOB",
            help="Text to measure forgetting on (gate.max_forgetting); repeatable.",
        ),
    ] = ()
    replay: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="PATH_OR_GLOB",
            help="Text against forgetting (training.replay_share); repeatable.",
        ),
    ] = ()
    vocab: Annotated[str | None, VOCAB_OPTION] = None
    data: Annotated[str | None, typer.Option(metavar="DIR", help="The task's official folder.")] = None
    train: Annotated[tuple[str, ...], typer.Option(metavar="FILE", help="Training rows; repeatable.")] = ()
    held_out: Annotated[
        tuple[str, ...],
        typer.Option("--eval", metavar="FILE", help="Held-out rows; repeatable."),
    ] = ()
    test: Annotated[tuple[str, ...], typer.Option(metavar="FILE", help="Rows to predict; repeatable.")] = ()
    init: Annotated[str | None, INIT_OPTION] = None
    cased: Annotated[bool | None, CASED_OPTION] = None
    settings: Annotated[tuple[str, ...], SET_OPTION] = ()
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Name of the pipeline (bert-pretrain, bert-finetune).",
        ),
    ] = ""
    metadata: Annotated[
        str,
        typer.Option(
            metavar="URI",
            help="ML Metadata: sqlite:FILE, mysql://USER@HOST/DATABASE or grpc://HOST:PORT.",
        ),
    ] = ""
    beam_args: tuple[str, ...] = ()
    latest: str = ""

    @functools.cached_property
    def resolved(self) -> Recipe | FineTuneRecipe:
        """The recipe with its settings; of a compiled run as it was compiled, whatever has become of `init` since.

        Raises:
            InputError: no such recipe or task, or an invalid setting.
        """
        from pipeline.recipes.finetuning import finetuning
        from pipeline.recipes.initial_model import with_start
        from pipeline.recipes.pretraining import RECIPES
        from pipeline.recipes.settings import with_settings

        if self.recipe not in RECIPES:
            return with_settings(finetuning(self.recipe), self.settings)
        recipe = RECIPES[self.recipe]()
        # Where a file is compiled for a cluster, the folder need not exist; the first step there reads it.
        if self.init and not os.path.isdir(self.init):
            return with_settings(recipe, self.settings)
        try:
            return with_start(recipe, self.init, self.cased, self.settings)
        except InputError as error:
            if not self.init:
                raise
            from pipeline.runs.served_versions import hint_at_version

            raise hint_at_version(error, self.init) from None

    def with_version(self) -> RunRequest:
        """The request with `--init latest` replaced by the version that the run directory serves now.

        Raises:
            InputError: no version has been pushed.
        """
        from pipeline.runs.served_versions import served_version

        if self.init != LATEST:
            return self
        version = served_version(serving_dir(self.run_dir))
        if version is None:
            raise InputError(f"--init {LATEST}: {self.run_dir} has no pushed version; give a model for the first run")
        init = os.path.join(serving_dir(self.run_dir), str(version))
        return dataclasses.replace(self, init=init, latest=str(version))

    @property
    def reads_only_new(self) -> bool:
        """Whether documents that the initial model has read are left out: for `--init latest` without reread."""
        settings = getattr(self.resolved, "corpus", None)
        return bool(self.latest or self.init == LATEST) and settings is not None and not settings.reread

    @property
    def pipeline_name(self) -> str:
        """Name of the pipeline in ML Metadata."""
        return self.name or f"bert-{self.resolved.workflow}"

    @property
    def metadata_uri(self) -> str:
        """Location of ML Metadata."""
        return self.metadata or f"sqlite:{metadata_file(self.run_dir)}"

    def run_name(self, run_id: str) -> str:
        """A run's name in ML Metadata, which includes the pipeline's: two pipelines may have equal run ids."""
        return f"{self.pipeline_name}.{run_id}"

    def write(self, run_id: str) -> None:
        """Write the request and the resolved recipe for the later steps of the run."""
        from components.io.shards import write_json

        os.makedirs(compiled_dir(self.run_dir), exist_ok=True)
        fields = {**dataclasses.asdict(self), _RESOLVED: dataclasses.asdict(self.resolved)}
        write_json(_path(self.run_dir, run_id, "json"), fields)

    @classmethod
    def read(cls, run_dir: str, run_id: str) -> RunRequest:
        """Read the request of a run.

        Raises:
            InputError: no such run is compiled in the directory.
        """
        path = _path(run_dir, run_id, "json")
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError as error:
            raise InputError(
                f"{path}: no such file; `bert-tfx compile nodes` with this --run-dir and --run-id makes it"
            ) from error
        fields = json.loads(text)
        resolved = fields.pop(_RESOLVED, None)
        request = TypeAdapter(cls).validate_python(fields)
        if resolved is not None:  # a run of an earlier version is resolved again
            from pipeline.recipes.finetuning import FineTuneRecipe
            from pipeline.recipes.pretraining import RECIPES
            from pipeline.recipes.settings import Recipe

            kind = TypeAdapter(Recipe if request.recipe in RECIPES else FineTuneRecipe)
            vars(request)["resolved"] = kind.validate_json(json.dumps(resolved))
        return request


def intermediate_representation(run_dir: str, run_id: str) -> str:
    """The file of a run's compiled pipeline."""
    return _path(run_dir, run_id, "pbtxt")


def run_ids(run_dir: str) -> list[str]:
    """The compiled runs of a run directory, newest first."""
    paths = glob.glob(os.path.join(glob.escape(compiled_dir(run_dir)), "*.json"))
    newest_first = sorted(paths, key=lambda path: (os.stat(path).st_mtime_ns, path), reverse=True)
    return [os.path.basename(path).removesuffix(".json") for path in newest_first]


def _path(run_dir: str, run_id: str, suffix: str) -> str:
    if not _RUN_ID.fullmatch(run_id):
        raise InputError(f"--run-id {run_id!r}: must be up to 200 of letters, digits, . _ : + -, the first no sign")
    return os.path.join(compiled_dir(run_dir), f"{run_id}.{suffix}")
