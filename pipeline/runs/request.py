"""What a user asks for: the options of `pretrain`, of `finetune` and of the commands that compile either."""

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Annotated

import typer

from bert_keras.errors import InputError
from pipeline.runs.run_dir import metadata_file

SET_OPTION = typer.Option(
    "--set", metavar="SECTION.FIELD=VALUE", help="Change a setting (`bert-tfx recipes RECIPE`); repeatable."
)
VOCAB_OPTION = typer.Option(metavar="FILE", help="A vocab.txt; default: learned from the corpus.")
# The value of --init for the version that the run directory serves.
LATEST = "latest"
INIT_OPTION = typer.Option(
    metavar="DIR", help="Initial model: a folder that `convert` reads, or `latest`, the served version."
)
CASED_OPTION = typer.Option("--cased/--uncased", help="Case of the given vocabulary, if its files do not say.")
TEACHER_OPTION = typer.Option(metavar="DIR", help="Larger model to learn from, too (distillation.*).")


@dataclasses.dataclass(frozen=True)
class Workflow:
    """A kind of run, as the command line and orchestrators see it, by the name of its command.

    `inputs` are the fields of `RunRequest` that only this workflow has; `tuned` are the settings that are parameters of
    a Kubeflow pipeline, by the parameters' names.
    """

    name: str
    inputs: tuple[str, ...]
    tuned: Mapping[str, str]


PRETRAIN = Workflow(
    name="pretrain",
    inputs=("corpus", "reference_corpus", "replay", "vocab", "init", "cased", "teacher"),
    tuned={
        "num_train_steps": "training.num_train_steps",
        "max_mlm_perplexity": "gate.max_mlm_perplexity",
        "min_mlm_accuracy": "gate.min_mlm_accuracy",
        "min_nsp_accuracy": "gate.min_nsp_accuracy",
    },
)
FINETUNE = Workflow(
    name="finetune",
    inputs=("data", "train", "held_out", "test", "init", "cased", "teacher", "unlabelled"),
    tuned={"num_train_epochs": "training.num_train_epochs", "min_score": "gate.min_score"},
)
WORKFLOWS = {workflow.name: workflow for workflow in (PRETRAIN, FINETUNE)}


@dataclasses.dataclass(frozen=True)
class RunRequest:
    """A pre-training or a fine-tuning in a run directory. The fields with help are also options of the commands.

    `run_dir` is absolute; `beam_args` are for the Beam stages, none: this machine's. `latest` is the version that
    `--init latest` stands for in this run; "": another `--init`.
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
        typer.Option(metavar="PATH_OR_GLOB", help="Text to measure forgetting on (gate.max_forgetting); repeatable."),
    ] = ()
    replay: Annotated[
        tuple[str, ...],
        typer.Option(metavar="PATH_OR_GLOB", help="Text against forgetting (training.replay_share); repeatable."),
    ] = ()
    vocab: Annotated[str | None, VOCAB_OPTION] = None
    data: Annotated[str | None, typer.Option(metavar="DIR", help="The task's official folder.")] = None
    train: Annotated[tuple[str, ...], typer.Option(metavar="FILE", help="Training rows; repeatable.")] = ()
    held_out: Annotated[tuple[str, ...], typer.Option("--eval", metavar="FILE", help="Held-out rows; repeatable.")] = ()
    test: Annotated[tuple[str, ...], typer.Option(metavar="FILE", help="Rows to predict; repeatable.")] = ()
    init: Annotated[str | None, INIT_OPTION] = None
    cased: Annotated[bool | None, CASED_OPTION] = None
    teacher: Annotated[str | None, TEACHER_OPTION] = None
    unlabelled: Annotated[
        tuple[str, ...], typer.Option(metavar="FILE", help="Training rows that --teacher labels; repeatable.")
    ] = ()
    settings: Annotated[tuple[str, ...], SET_OPTION] = ()
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the pipeline (bert-pretrain, bert-finetune).")] = ""
    metadata: Annotated[
        str,
        typer.Option(metavar="URI", help="ML Metadata: sqlite:FILE, mysql://USER@HOST/DATABASE or grpc://HOST:PORT."),
    ] = ""
    beam_args: tuple[str, ...] = ()
    latest: str = ""

    def __post_init__(self) -> None:
        if re.match("sqlite:[^/]", self.metadata):  # the steps of a run have other working directories
            object.__setattr__(self, "metadata", f"sqlite:{os.path.abspath(self.metadata.removeprefix('sqlite:'))}")

    @property
    def metadata_uri(self) -> str:
        """Location of ML Metadata."""
        return self.metadata or f"sqlite:{metadata_file(self.run_dir)}"

    def run_name(self, run_id: str) -> str:
        """A run's name in ML Metadata, which includes the pipeline's: two pipelines may have equal run ids."""
        return f"{self.name}.{run_id}"


@dataclasses.dataclass(frozen=True)
class KubeflowCluster:
    """Volume, bucket and secret of the steps of a Kubeflow pipeline; the fields are options of `compile kubeflow`."""

    image: Annotated[str, typer.Option(metavar="IMAGE", help="Image of every step, with bert-tfx on its PATH.")]
    volume: Annotated[
        str, typer.Option(metavar="CLAIM", help="PersistentVolumeClaim shared by all steps (ReadWriteMany).")
    ] = "bert-tfx"
    mount_path: Annotated[str, typer.Option(metavar="DIR", help="Mount path of the volume.")] = "/runs"
    bucket: Annotated[
        str | None, typer.Option(metavar="BUCKET", help="For Vertex AI: bucket of Cloud Storage, in place of a volume.")
    ] = None
    password_secret: Annotated[
        str | None, typer.Option(metavar="NAME/KEY", help="Kubernetes Secret with the password of --metadata.")
    ] = None

    def __post_init__(self) -> None:
        secret = self.password_secret
        if not self.mount_path.startswith("/"):
            raise InputError(f"--mount-path {self.mount_path}: give an absolute path")
        if secret is not None and not re.fullmatch(r"[^/]+/[^/]+", secret):
            raise InputError(f"--password-secret {secret}: give the Secret's name and its key, as NAME/KEY")
        if self.bucket is not None and secret is not None:
            raise InputError("--password-secret: Vertex AI has no Secrets; give a --metadata without a password")

    @property
    def root(self) -> str:
        """The folder shared by all steps."""
        return f"/gcs/{self.bucket}" if self.bucket is not None else self.mount_path.rstrip("/")
