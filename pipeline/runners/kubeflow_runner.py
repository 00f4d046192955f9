"""A pipeline for Kubeflow Pipelines or Vertex AI: one container a step, each a command of this project.

Every step is an ordinary container, the Resolver too, so an open-source backend can run all of them. What a step does
is decided when it runs: its container has this project in it. Here are paths, arguments and resources alone.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kfp import compiler, dsl, kubernetes
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from bert_keras.errors import InputError
from pipeline.config import settings_of
from pipeline.run_request import RunRequest
from pipeline.runners.stage_resources import StageResources

# The steps before and after the nodes; the last one is skipped where the gate refused the model.
COMPILE, FINISH, PUSHED = "compile", "finish", "pushed"
PASSWORD = "BERT_TFX_METADATA_PASSWORD"
# A parameter of the pipeline, and the setting that it is.
PRETRAIN_PARAMETERS = {
    "num_train_steps": "training.num_train_steps",
    "max_mlm_perplexity": "gate.max_mlm_perplexity",
    "min_mlm_accuracy": "gate.min_mlm_accuracy",
    "min_nsp_accuracy": "gate.min_nsp_accuracy",
}
TASK_PARAMETERS = {"num_train_epochs": "training.num_train_epochs", "min_score": "gate.min_score"}
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,126}[a-z0-9])?")
Graph = Mapping[str, Sequence[str]]


@dataclasses.dataclass(frozen=True)
class KubeflowSettings:
    """Where the steps run and what they share.

    Attributes:
        image: of every step: this project, with `bert-tfx` on its PATH.
        volume: the PersistentVolumeClaim that all steps see, from several nodes at once (ReadWriteMany).
        mount_path: where they see it.
        bucket: of Cloud Storage: the pipeline is for Vertex AI, where all steps see /gcs/BUCKET, and no volume.
        password_secret: Secret and key, as NAME/KEY, of the password of ML Metadata.
        retries: how often a step that failed is tried again.
    """

    image: str
    volume: str = "bert-tfx"
    mount_path: str = "/runs"
    bucket: str | None = None
    password_secret: str | None = None
    retries: int = 2

    def __post_init__(self) -> None:
        if not self.mount_path.startswith("/"):
            raise InputError(f"--mount-path {self.mount_path}: give an absolute path")
        if self.retries < 0:
            raise InputError(f"--retries {self.retries}: give 0 or more")
        secret = self.password_secret
        if secret is not None and not re.fullmatch(r"[^/]+/[^/]+", secret):
            raise InputError(f"--password-secret {secret}: give the Secret's name and its key, as NAME/KEY")
        if self.bucket is not None and secret is not None:
            raise InputError("--password-secret: Vertex AI has no Secrets; give a --metadata that asks for no password")

    @property
    def root(self) -> str:
        """The folder that all steps see."""
        return f"/gcs/{self.bucket}" if self.bucket is not None else self.mount_path.rstrip("/")


def run_dir_of(request: RunRequest, settings: KubeflowSettings) -> RunRequest:
    """The request with the run directory that its steps see: the pipeline's name, below what they share.

    Raises:
        InputError: the name cannot be one of a pipeline.
    """
    name = request.pipeline_name
    if not _NAME.fullmatch(name):
        raise InputError(f"--name {name}: give at most 128 of a-z 0-9 -, no - first or last")
    return dataclasses.replace(request, run_dir=f"{settings.root}/{name}")


def steps_of(graph: Graph) -> list[str]:
    """The steps of a pipeline: its nodes, and what comes before and after them."""
    return [COMPILE, *graph, FINISH, PUSHED]


def write_pipeline(
    path: str, request: RunRequest, graph: Graph, settings: KubeflowSettings, resources: Mapping[str, StageResources]
) -> None:
    """Compiles a pipeline into a file; the same arguments give the same bytes.

    Args:
        path: the YAML file.
        request: what every run of it does, but for what its parameters change.
        graph: the nodes of the request, and which each follows (`pipeline.orchestrated.graph_of`).
        settings: where the steps run.
        resources: of each of `steps_of(graph)`.
    """
    built = _Builder(request, graph, settings, resources).pipeline()
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".compile-") as made:
        file = os.path.join(made, "pipeline.yaml")
        compiler.Compiler().compile(built, file)
        os.replace(file, path)


def _signature(types: Mapping[str, Any], defaults: Mapping[str, Any]) -> inspect.Signature:
    """The parameters of a pipeline or a step; what has no default comes first."""
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    made = [inspect.Parameter(n, kind, default=defaults.get(n, empty), annotation=types[n]) for n in types]
    return inspect.Signature(sorted(made, key=lambda parameter: parameter.default is not empty))


@dataclasses.dataclass
class _Builder:
    """Defines a pipeline in the words of Kubeflow's SDK, which takes names and types from functions."""

    request: RunRequest
    graph: Graph
    settings: KubeflowSettings
    resources: Mapping[str, StageResources]

    def __post_init__(self) -> None:
        self._numbers = PRETRAIN_PARAMETERS if self.request.pretrains else TASK_PARAMETERS

    def pipeline(self) -> BaseComponent:
        defaults = self._defaults()
        types = {name: str if value is None else type(value) for name, value in defaults.items()}
        signature = _signature(types, {name: value for name, value in defaults.items() if value is not None})

        def pipeline(*values: Any) -> None:
            first = self._step(
                COMPILE, self._compile_words, dict(zip(signature.parameters, values, strict=True)), types
            )
            # A store of one file takes one writer at a time.
            in_turn = self.request.metadata_uri.startswith("sqlite:")
            done: dict[str, PipelineTask] = {}
            before = first
            for node, upstream in self.graph.items():
                task = self._step(node, lambda node=node, **_: ["run-node", node])
                task.after(*([before] if in_turn else [done[name] for name in upstream] or [first]))
                done[node] = before = task
            followed = {name for upstream in self.graph.values() for name in upstream}
            last = self._step(
                FINISH, lambda outcome, **_: ["finish", "--outcome", outcome], types={"outcome": dsl.OutputPath(str)}
            )
            last.after(*(task for node, task in done.items() if node not in followed))
            with dsl.If(last.outputs["outcome"] == PUSHED, name=PUSHED):
                self._step(PUSHED, lambda **_: ["models", "list"])

        pipeline.__signature__ = signature  # type: ignore[attr-defined]
        said = f"{self.request.recipe}: a step for each node of the TFX pipeline, from data to a pushed model"
        return dsl.pipeline(name=self.request.pipeline_name, description=said)(pipeline)

    def _defaults(self) -> dict[str, Any]:
        """The parameters and their defaults; None: it must be given."""
        request, values = self.request, settings_of(self.request.resolved)
        inputs: dict[str, Any] = {"corpus": list(request.corpus)} if request.pretrains else {"init": request.init}
        if not request.pretrains and not request.train:
            inputs["data"] = request.data
        others = [text for text in request.settings if text.partition("=")[0].strip() not in self._numbers.values()]
        numbers = {name: values[setting] for name, setting in self._numbers.items()}
        return {"recipe": request.recipe, **inputs, "settings": others, **numbers}

    def _compile_words(self, recipe: str, settings: str, **given: str) -> list[str]:
        """The command of the first step; the arguments are placeholders, which the backend fills in."""
        request = self.request
        words = ["compile", "nodes", recipe, "--name", request.pipeline_name, "--metadata", request.metadata_uri]
        words += ["--expect", ",".join(self.graph), "--set-json", settings]
        words += [word for name, setting in self._numbers.items() for word in ("--set", f"{setting}={given[name]}")]
        words += ["--corpus-json", given["corpus"]] if "corpus" in given else []
        words += [word for name in ("data", "init") if name in given for word in (f"--{name}", given[name])]
        words += ["--vocab", request.vocab] if request.vocab else []
        for option, files in (("--train", request.train), ("--eval", request.held_out), ("--test", request.test)):
            words += [word for file in files for word in (option, file)]
        words += [] if request.cased is None else ["--cased" if request.cased else "--uncased"]
        return words

    def _step(
        self,
        step: str,
        words: Callable[..., list[str]],
        given: Mapping[str, Any] | None = None,
        types: Mapping[str, Any] | None = None,
    ) -> PipelineTask:
        """A step that runs `bert-tfx` with the words, the run directory and the run's id.

        Args:
            step: what it is called.
            words: from placeholders by name to the words.
            given: parameters of the pipeline that it takes.
            types: of what it takes and writes.
        """
        # The id is the whole of an input: backends fill in nothing less.
        run = {} if step == PUSHED else {"run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER}
        signature = _signature({**(types or {}), **dict.fromkeys(run, str)}, {})

        def container(*placeholders: Any) -> dsl.ContainerSpec:
            names = dict(zip(signature.parameters, placeholders, strict=True))
            of_run = ["--run-dir", self.request.run_dir]
            of_run += ["--run-id", names.pop("run_id")] if run else []
            of_beam = ["--", *self.request.beam_args] if step == COMPILE and self.request.beam_args else []
            args = [*words(**names), *of_run, *of_beam]
            return dsl.ContainerSpec(image=self.settings.image, command=["bert-tfx"], args=args)

        container.__name__ = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", step).lower()
        container.__signature__ = signature  # type: ignore[attr-defined]
        task = dsl.container_component(container)(**(given or {}), **run)
        self._place(step, task)
        return task

    def _place(self, step: str, task: PipelineTask) -> None:
        """What the step asks for, what it sees and how often it is tried."""
        asked, settings = self.resources[step], self.settings
        # TFX has a cache of its own, and it knows more.
        task.set_caching_options(False)
        if step != COMPILE:
            task.set_retry(settings.retries, backoff_duration="30s", backoff_factor=2.0, backoff_max_duration="600s")
        task.set_cpu_request(asked.cpu).set_memory_request(asked.memory).set_memory_limit(asked.memory)
        if asked.accelerator:
            task.set_accelerator_type(asked.accelerator).set_accelerator_limit(asked.accelerator_count)
        if settings.bucket is not None:
            # Vertex AI chooses its machines by limits, and has neither volumes nor labels of nodes.
            task.set_cpu_limit(asked.cpu)
            return
        kubernetes.mount_pvc(task, settings.volume, settings.mount_path)
        for label, value in sorted(asked.node_selector.items()):
            kubernetes.add_node_selector(task, label, value)
        for toleration in asked.tolerations:
            kubernetes.add_toleration(task, **toleration)
        if settings.password_secret is not None and step != PUSHED:
            secret, _, key = settings.password_secret.partition("/")
            kubernetes.use_secret_as_env(task, secret, {key: PASSWORD})
