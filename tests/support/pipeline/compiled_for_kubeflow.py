"""A compiled pipeline file for several tests, without TFX."""

import contextlib
import sys
from unittest import mock

import yaml

from pipeline.runners.kubeflow import in_shared_folder, steps_of, write_pipeline
from pipeline.runners.stage_resources import resources_of
from pipeline.runs.request import KubeflowCluster, RunRequest
from pipeline.runs.resolve import without_inputs

METADATA = "grpc://metadata-grpc-service.kubeflow:8080"
# The nodes of tiny_cpu, and their upstream nodes.
GRAPH = {
    "CorpusGen": (),
    "ImportSchemaGen": (),
    "VocabGen": ("CorpusGen",),
    "PretrainExampleGen": ("CorpusGen", "VocabGen"),
    "StatisticsGen": ("PretrainExampleGen",),
    "ExampleValidator": ("ImportSchemaGen", "StatisticsGen"),
    "ExampleGate": ("CorpusGen", "ExampleValidator", "PretrainExampleGen"),
    "Trainer": ("ExampleGate", "PretrainExampleGen"),
    "Baseline": ("Trainer",),
    "Evaluator": ("Baseline", "PretrainExampleGen", "Trainer"),
    "ServingValidator": ("Evaluator", "Trainer"),
    "ModelPush": ("Evaluator", "ServingValidator", "Trainer"),
}
STEPS = [
    "compile",
    "corpus-gen",
    "import-schema-gen",
    "vocab-gen",
    "pretrain-example-gen",
    "statistics-gen",
    "example-validator",
    "example-gate",
    "trainer",
    "baseline",
    "evaluator",
    "serving-validator",
    "model-push",
    "finish",
]


@contextlib.contextmanager
def without_source_lines():
    """Within it, kfp learns its caller's name, `stack()[1][3]`, without the files of all frames, which take seconds."""
    with mock.patch("inspect.stack", lambda: [None, (None, None, None, sys._getframe(2).f_code.co_name)]):
        yield


@without_source_lines()
def compiled(path, recipe="tiny_cpu", graph=GRAPH, resources=None, image="bert-tfx:0.1.0", request=None, **settings):
    """Write a file; return its documents: the pipeline's, and for a cluster Kubernetes' own."""
    of_cluster = KubeflowCluster(image, **settings)
    asked = RunRequest(recipe, "", **{"metadata": METADATA, **(request or {})})
    spec = in_shared_folder(without_inputs(asked), of_cluster)
    write_pipeline(str(path), spec, graph, of_cluster, resources_of(resources, steps_of(graph)))
    return list(yaml.safe_load_all(path.read_text()))


def containers(spec):
    """The container of each step, by the step's name."""
    executors = spec["deploymentSpec"]["executors"]
    return {label.removeprefix("exec-"): executor["container"] for label, executor in executors.items()}
