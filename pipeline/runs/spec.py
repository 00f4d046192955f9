"""A run as it was resolved when it began: the only record that its later steps read.

RUN_DIR/compiled/RUN_ID.json     the `RunSpec`, without credentials
RUN_DIR/compiled/RUN_ID.pbtxt    the pipeline in TFX's intermediate representation, as text
"""

import dataclasses
import glob
import os
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bert_keras.errors import InputError
from components.corpus_gen.inputs import NO_FILES, InputFile, InputList
from components.io.shards import write_json
from pipeline.recipes.finetuning import FineTuneRecipe
from pipeline.recipes.settings import Recipe
from pipeline.runs.request import LATEST, WORKFLOWS, RunRequest, Workflow
from pipeline.runs.run_dir import compiled_dir, model_name
from pipeline.stages import RUN_ID

# Evaluation sets without texts in a corpus (`corpus.decontaminate`), {"name", "sha256", "unread"} of each, with the
# number of rows that could not be read; None: unknown.
Checked = list[dict[str, Any]] | None


@dataclasses.dataclass(frozen=True)
class InitialFiles:
    """The folder of an initial model or a teacher, the sha256 of its files, and its licence file; "": it has none."""

    source: str
    sha256: str
    licence: str


@dataclasses.dataclass(frozen=True)
class RunInputs:
    """What a run reads, as it was when the run began; a workflow leaves the inputs of the other one empty.

    `reference` is text that is only scored, `replay` a share of every batch. Without a `vocabulary` file one is
    learned; without `earlier`, the folder of the documents that were read before, all are read. `leaks` is the path of
    the table of evaluation sets (`corpus.decontaminate`), `checked` those that the corpus has no texts of, `pairs` the
    path of `gate.minimal_pairs`. `rows` are a task's files by split, `rows_fingerprint` the hash of their names and
    contents.
    """

    corpus: InputList = NO_FILES
    reference: InputList = NO_FILES
    replay: InputList = NO_FILES
    vocabulary: InputFile | None = None
    earlier: str = ""
    leaks: str = ""
    checked: Checked = None
    pairs: str = ""
    rows: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    rows_fingerprint: str = ""
    initial_model: InitialFiles | None = None
    teacher: InitialFiles | None = None

    @property
    def fingerprints(self) -> dict[str, str]:
        """The hash of each input that the run has, by what it is a hash of."""
        hashes = {
            "Corpus: the files' names and contents": self.corpus.fingerprint,
            "Reference corpus": self.reference.fingerprint,
            "Replayed text": self.replay.fingerprint,
            "Rows: the files' names and contents": self.rows_fingerprint,
        }
        for title, files in (("Initial model", self.initial_model), ("Teacher", self.teacher)):
            if files:
                hashes[f"{title} {model_name(files.source)}: sha256 of its files"] = files.sha256
        return {name: value for name, value in hashes.items() if value}


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """A resolved run.

    `request` has the pipeline's name, and the version that `--init latest` stood for; `recipe` all settings. `inputs`
    are empty before they are read (`pipeline.runs.resolve`).
    """

    request: RunRequest
    recipe: Recipe | FineTuneRecipe
    inputs: RunInputs = dataclasses.field(default_factory=RunInputs)

    @property
    def workflow(self) -> Workflow:
        """The kind of the run."""
        return WORKFLOWS[self.recipe.workflow]

    @property
    def reads_only_new(self) -> bool:
        """Return whether documents that the initial model has read are left out: for `--init latest` without reread."""
        continues = bool(self.request.latest) or self.request.init == LATEST
        return continues and isinstance(self.recipe, Recipe) and not self.recipe.corpus.reread

    def write(self, run_id: str) -> None:
        """Write the spec for the later steps of the run."""
        write_json(_path(self.request.run_dir, run_id, "json"), dataclasses.asdict(self))

    @classmethod
    def read(cls, run_dir: str, run_id: str) -> "RunSpec":
        """Read the spec of a run; InputError if it is not compiled, or by another version of this program."""
        path = _path(run_dir, run_id, "json")
        try:
            with open(path, encoding="utf-8") as file:
                return TypeAdapter(cls).validate_json(file.read())
        except FileNotFoundError as error:
            raise InputError(
                f"{path}: no such file; `bert-tfx compile nodes` with this --run-dir and --run-id makes it"
            ) from error
        except ValidationError as error:
            raise InputError(f"{path}: another version of bert-tfx compiled this run; start a new run") from error


def intermediate_representation(run_dir: str, run_id: str) -> str:
    """The file of a run's compiled pipeline."""
    return _path(run_dir, run_id, "pbtxt")


def run_ids(run_dir: str) -> list[str]:
    """The compiled runs of a run directory, newest first."""
    paths = glob.glob(os.path.join(glob.escape(compiled_dir(run_dir)), "*.json"))
    newest_first = sorted(paths, key=lambda path: (os.stat(path).st_mtime_ns, path), reverse=True)
    return [os.path.basename(path).removesuffix(".json") for path in newest_first]


def _path(run_dir: str, run_id: str, suffix: str) -> str:
    if not RUN_ID.fullmatch(run_id):
        raise InputError(f"--run-id {run_id!r}: must be up to 200 of letters, digits, . _ : + -, the first no sign")
    return os.path.join(compiled_dir(run_dir), f"{run_id}.{suffix}")
