"""Compiles a pipeline for Kubeflow Pipelines or Vertex AI: one container per step, each a command of this project.

Every step is an ordinary container, including the Resolver, so an open-source backend can run all of them. The
compiled file holds only paths, arguments and resources; the code is in the containers' image.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kfp import compiler, dsl, kubernetes
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from bert_keras.errors import InputError
from bert_keras.files import replacing
from pipeline.recipes.settings import settings_of
from pipeline.runners.stage_resources import StageResources
from pipeline.runners.step_words import COMPILE, FINISH, PASSWORD, PUSHED, compile_words, option_words
from pipeline.runs.request import PRETRAIN, KubeflowCluster
from pipeline.runs.spec import RunSpec

# Of a failed step. The first is not retried: what fails there is bad input.
_RETRIES = 2
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,126}[a-z0-9])?")
Graph = Mapping[str, Sequence[str]]


def in_shared_folder(spec: RunSpec, cluster: KubeflowCluster) -> RunSpec:
    """The spec with a run directory of the pipeline's name in the shared folder; InputError for an invalid name."""
    if not _NAME.fullmatch(name := spec.request.name):
        raise InputError(f"--name {name}: give at most 128 of a-z 0-9 -, no - first or last")
    request = dataclasses.replace(spec.request, run_dir=f"{cluster.root}/{name}")
    return dataclasses.replace(spec, request=request)


def steps_of(graph: Graph) -> list[str]:
    """The steps of a pipeline: its nodes, and the steps before and after them; the last needs a pushed model."""
    return [COMPILE, *graph, FINISH, PUSHED]


def write_pipeline(
    path: str, spec: RunSpec, graph: Graph, cluster: KubeflowCluster, resources: Mapping[str, StageResources]
) -> None:
    """Compile a pipeline into a file; equal arguments give equal bytes.

    `spec` is every run's, before parameters are applied; `graph` is from `pipeline.runners.run_steps.graph_of`.
    """
    with replacing(path) as file:
        compiler.Compiler().compile(_Builder(spec, graph, cluster, resources).pipeline(), file)


def _signature(types: Mapping[str, Any], defaults: Mapping[str, Any]) -> inspect.Signature:
    """The parameters of a pipeline or a step; those without a default come first."""
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    made = [inspect.Parameter(n, kind, default=defaults.get(n, empty), annotation=types[n]) for n in types]
    return inspect.Signature(sorted(made, key=lambda parameter: parameter.default is not empty))


@dataclasses.dataclass
class _Builder:
    """Defines a pipeline with Kubeflow's SDK, which takes names and types from functions."""

    spec: RunSpec
    graph: Graph
    cluster: KubeflowCluster
    resources: Mapping[str, StageResources]

    @property
    def _tuned(self) -> Mapping[str, str]:
        """The parameters that are settings; a budget decides the number of steps."""
        budget = settings_of(self.spec.recipe).get("training.budget")
        return {
            name: setting
            for name, setting in self.spec.workflow.tuned.items()
            if not (budget and setting.endswith("_steps"))
        }

    def pipeline(self) -> BaseComponent:
        defaults = self._defaults()
        types = {name: str if value is None else type(value) for name, value in defaults.items()}
        signature = _signature(types, {name: value for name, value in defaults.items() if value is not None})

        def pipeline(*values: Any) -> None:
            given = dict(zip(signature.parameters, values, strict=True))
            before = first = self._step(COMPILE, self._compile_words, given, types)
            # A store in one file allows one writer at a time.
            in_turn = self.spec.request.metadata_uri.startswith("sqlite:")
            done: dict[str, PipelineTask] = {}
            for node, upstream in self.graph.items():
                task = self._step(node, lambda node=node, **_: ["run-node", node])
                task.after(*([before] if in_turn else [done[name] for name in upstream] or [first]))
                done[node] = before = task
            followed = {name for upstream in self.graph.values() for name in upstream}
            words = lambda outcome: ["finish", "--outcome", outcome]  # noqa: E731
            last = self._step(FINISH, words, types={"outcome": dsl.OutputPath(str)})
            last.after(*(task for node, task in done.items() if node not in followed))
            with dsl.If(last.outputs["outcome"] == PUSHED, name=PUSHED):
                self._step(PUSHED, lambda **_: ["models", "list"])

        pipeline.__signature__ = signature  # type: ignore[attr-defined]
        description = f"{self.spec.request.recipe}: one step per node of the TFX pipeline, from data to a pushed model"
        return dsl.pipeline(name=self.spec.request.name, description=description)(pipeline)

    def _defaults(self) -> dict[str, Any]:
        """The parameters and their defaults; None: required."""
        request, values = self.spec.request, settings_of(self.spec.recipe)
        others = [text for text in request.settings if text.partition("=")[0].strip() not in self._tuned.values()]
        numbers = {name: values[setting] for name, setting in self._tuned.items()}
        if self.spec.workflow is PRETRAIN:
            inputs: dict[str, Any] = {"corpus": list(request.corpus)} | ({"init": request.init} if request.init else {})
        else:
            inputs = {"init": request.init} | ({"data": request.data} if request.data or not request.train else {})
        return {"recipe": request.recipe, **inputs, "settings": others, **numbers}

    def _compile_words(self, recipe: str, settings: str, **given: str) -> list[str]:
        """The command of the first step; arguments are placeholders, which the backend replaces."""
        request = self.spec.request
        words = [*compile_words(recipe, request.name, request.metadata_uri, self.graph), "--set-json", settings]
        words += [word for name, setting in self._tuned.items() for word in ("--set", f"{setting}={given[name]}")]
        options: dict[str, Any] = {"--corpus-json": given.get("corpus")}
        options |= {f"--{name}": given.get(name) for name in ("data", "init")}
        options |= {"--vocab": request.vocab, "--cased/--uncased": request.cased, "--train": request.train}
        options |= {"--eval": request.held_out, "--test": request.test, "--reference-corpus": request.reference_corpus}
        options |= {"--replay": request.replay, "--teacher": request.teacher, "--unlabelled": request.unlabelled}
        return words + [word for option, value in options.items() for word in option_words(option, value)]

    def _step(
        self,
        step: str,
        words: Callable[..., list[str]],
        given: Mapping[str, Any] | None = None,
        types: Mapping[str, Any] | None = None,
    ) -> PipelineTask:
        """A step that runs `bert-tfx` with the words made of its placeholders, the run directory and the run id."""
        # The id is a whole input: backends replace no placeholders inside longer texts.
        run = {} if step == PUSHED else {"run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER}
        signature = _signature({**(types or {}), **dict.fromkeys(run, str)}, {})

        def container(*placeholders: Any) -> dsl.ContainerSpec:
            names = dict(zip(signature.parameters, placeholders, strict=True))
            run_words = ["--run-dir", self.spec.request.run_dir]
            run_words += ["--run-id", names.pop("run_id")] if run else []
            beam_words = ["--", *self.spec.request.beam_args] if step == COMPILE and self.spec.request.beam_args else []
            args = [*words(**names), *run_words, *beam_words]
            return dsl.ContainerSpec(image=self.cluster.image, command=["bert-tfx"], args=args)

        container.__name__ = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", step).lower()
        container.__signature__ = signature  # type: ignore[attr-defined]
        task = dsl.container_component(container)(**(given or {}), **run)
        self._place(step, task)
        return task

    def _place(self, step: str, task: PipelineTask) -> None:
        resources, cluster = self.resources[step], self.cluster
        # TFX's own cache knows more of the inputs.
        task.set_caching_options(False)
        if step != COMPILE:
            task.set_retry(_RETRIES, backoff_duration="30s", backoff_factor=2.0, backoff_max_duration="600s")
        task.set_cpu_request(resources.cpu).set_memory_request(resources.memory).set_memory_limit(resources.memory)
        if resources.accelerator:
            task.set_accelerator_type(resources.accelerator).set_accelerator_limit(resources.accelerator_count)
        if cluster.bucket is not None:
            # Vertex AI chooses machines by limits, and has neither volumes nor node labels.
            task.set_cpu_limit(resources.cpu)
            return
        kubernetes.mount_pvc(task, cluster.volume, cluster.mount_path)
        for label, value in sorted(resources.node_selector.items()):
            kubernetes.add_node_selector(task, label, value)
        for toleration in resources.tolerations:
            kubernetes.add_toleration(task, **toleration)
        if cluster.password_secret is not None and step != PUSHED:
            secret, _, key = cluster.password_secret.partition("/")
            kubernetes.use_secret_as_env(task, secret, {key: PASSWORD})
