"""ServingValidator: serves a blessed model and issues the InfraBlessing that Pusher requires.

It compares the answers with the trainer's, and measures latency and memory. It replaces TFX's InfraValidator, which
needs Docker or Kubernetes: docs/decisions/0012.
"""

import dataclasses
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import TypeAdapter
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
from tfx.components.evaluator.constants import ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY as MODEL_ID
from tfx.components.util import model_utils
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import path_utils

from bert_keras.saved_model.saved_model_files import EXTRA_FOLDER, WARMUP_FILE
from bert_keras.saved_model.servable_ops import SAVED_MODEL_FILE
from components.io.shards import write_json
from components.serving_validator.limits import ServingLimits
from components.serving_validator.served_model import NotServable, ServedModel
from components.stage import Stage

VERDICT_FILE = "verdict.json"
# As in InfraValidator: Pusher reads the property, people the file.
BLESSED_FILE, NOT_BLESSED_FILE, BLESSED_KEY = "INFRA_BLESSED", "INFRA_NOT_BLESSED", "blessed"
# The quality gate has just called it over the held-out examples; clients do not.
EVALUATE = "evaluate"
_MOST_SHOWN = 3


@dataclasses.dataclass(frozen=True)
class ServingVerdict:
    """Content of `verdict.json`; a model that the quality gate did not bless is not served, and so not `checked`.

    `problems` are reasons for not blessing it, a clause each; `latency_ms` is the 95th percentile of each signature,
    `answers` the number of compared and timed answers; `memory_mb` and `load_seconds` are as in `ServingLimits`.
    """

    blessed: bool
    checked: bool
    problems: list[str] = dataclasses.field(default_factory=list)
    latency_ms: dict[str, float] = dataclasses.field(default_factory=dict)
    memory_mb: float = 0.0
    load_seconds: float = 0.0
    answers: int = 0


def check_model(directory: str, limits: ServingLimits) -> ServingVerdict:
    """Serve a SavedModel and send every request recorded with it; StageError if the server does not start."""
    with tf.io.gfile.GFile(os.path.join(directory, SAVED_MODEL_FILE), "rb") as file:
        graphs = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    (signatures,) = (graph.signature_def for graph in graphs if "serve" in graph.meta_info_def.tags)
    recorded = read_recorded(directory)
    known = {log.request.model_spec.signature_name for log in recorded if log.response.outputs}
    # TensorFlow's own signatures begin with "__".
    if missing := sorted({name for name in signatures if not name.startswith("__")} - {EVALUATE} - known):
        problem = f"no requests are recorded for {', '.join(missing)} in {EXTRA_FOLDER}/{WARMUP_FILE}"
        return ServingVerdict(blessed=False, checked=True, problems=[problem])
    try:
        with ServedModel(directory, limits.max_load_seconds) as served:
            return _ask(served, recorded, signatures, limits)
    except NotServable as error:
        return ServingVerdict(blessed=False, checked=True, problems=[str(error)])


def read_recorded(directory: str) -> list[prediction_log_pb2.PredictLog]:
    """Requests recorded with a SavedModel, with the answers of the trained model."""
    if not tf.io.gfile.exists(path := os.path.join(directory, EXTRA_FOLDER, WARMUP_FILE)):
        return []
    records = tf.data.TFRecordDataset(path).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record).predict_log for record in records]


def _ask(
    served: ServedModel,
    recorded: list[prediction_log_pb2.PredictLog],
    signatures: Mapping[str, meta_graph_pb2.SignatureDef],
    limits: ServingLimits,
) -> ServingVerdict:
    """Send every request repeatedly and compare every answer, the last as the first."""
    problems: dict[str, None] = {}
    times: dict[str, list[float]] = {}
    for log in recorded:
        name = log.request.model_spec.signature_name
        for _ in range(limits.repetitions):
            begun = time.perf_counter()
            answer = served.predict(log.request, seconds=limits.max_load_seconds)
            times.setdefault(name, []).append(1000 * (time.perf_counter() - begun))
            texts = differences(answer, log.response, signatures[name], limits.max_difference)
            problems |= dict.fromkeys(f"{name}: {text}" for text in texts)
    # The smallest value that at least 95 % of the values do not exceed.
    latency = {name: float(np.percentile(of_one, 95, method="inverted_cdf")) for name, of_one in times.items()}
    memory = served.memory_mb()
    problems |= dict.fromkeys(_outside(latency, memory, limits))
    more = len(problems) - _MOST_SHOWN
    shown = [*problems][:_MOST_SHOWN] + ([f"and {more} more"] if more > 0 else [])
    return ServingVerdict(
        blessed=not problems,
        checked=True,
        problems=shown,
        latency_ms={name: round(value, 3) for name, value in latency.items()},
        memory_mb=round(memory, 1),
        load_seconds=round(served.load_seconds, 2),
        answers=sum(map(len, times.values())),
    )


def _outside(latency: Mapping[str, float], memory: float, limits: ServingLimits) -> list[str]:
    slow = [
        f"{name}: 95th percentile of the latency {value:.4g} ms"
        f" (threshold: serving.max_latency_ms={limits.max_latency_ms:g})"
        for name, value in latency.items()
        if value > limits.max_latency_ms
    ]
    if memory <= limits.max_memory_mb:
        return slow
    return [*slow, f"memory: {memory:.0f} MiB (threshold: serving.max_memory_mb={limits.max_memory_mb})"]


def differences(
    answer: predict_pb2.PredictResponse,
    own: predict_pb2.PredictResponse,
    signature: meta_graph_pb2.SignatureDef,
    max_difference: float,
) -> list[str]:
    """Differences between a served answer and the trainer's, and from what the signature declares."""
    if set(answer.outputs) != set(signature.outputs):
        return [f"returns {', '.join(sorted(answer.outputs))} instead of {', '.join(sorted(signature.outputs))}"]
    problems = []
    for name, info in sorted(signature.outputs.items()):
        proto = answer.outputs[name]
        sizes = [dim.size for dim in info.tensor_shape.dim]
        if proto.dtype != info.dtype:
            problems.append(f"{name} is {_dtype(proto.dtype)}, the signature says {_dtype(info.dtype)}")
            continue
        array = tf.make_ndarray(proto)
        known = not info.tensor_shape.unknown_rank
        if known and not tf.TensorShape([None if s < 0 else s for s in sizes]).is_compatible_with(array.shape):
            problems.append(f"{name} has the shape {list(array.shape)}, the signature says {sizes}")
        elif text := _difference(array, tf.make_ndarray(own.outputs[name]), max_difference):
            problems.append(f"{name} {text}")
    return problems


def _difference(array: np.ndarray, own: np.ndarray, max_difference: float) -> str:
    """Difference of an output from the trainer's; "" if there is none."""
    if array.shape != own.shape:
        return f"has the shape {list(array.shape)}, the trainer's {list(own.shape)}"
    if array.dtype.kind != "f":
        different = int(np.sum(array != own))
        return f"differs from the trainer's in {different} of {array.size} values" if different else ""
    if not np.isfinite(array).all():
        return "contains numbers that are not finite"
    worst = float(np.max(np.abs(array - own) / np.maximum(1.0, np.abs(own)), initial=0.0))
    # If the trainer's answer is not finite, the difference is NaN.
    if worst <= max_difference:
        return ""
    return f"differs by {worst:.2g} from the trainer's (threshold: serving.max_difference={max_difference:g})"


def _dtype(number: int) -> str:
    return tf.dtypes.as_dtype(number).name


class Executor(base_executor.BaseExecutor):
    """Serves the model for a check, unless the quality gate has refused it; StageError if the server does not start.

    A model that fails the check is a result, not an error: the verdict is kept and reported, and Pusher pushes nothing.
    """

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        model = artifact_utils.get_single_instance(input_dict["model"])
        blessing = artifact_utils.get_single_instance(output_dict["blessing"])
        verdict = ServingVerdict(blessed=False, checked=False)
        if model_utils.is_model_blessed(artifact_utils.get_single_instance(input_dict["model_blessing"])):
            limits = TypeAdapter(ServingLimits).validate_json(exec_properties["limits"])
            verdict = check_model(path_utils.serving_model_path(model.uri), limits)
        tf.io.gfile.makedirs(blessing.uri)
        name = BLESSED_FILE if verdict.blessed else NOT_BLESSED_FILE
        with tf.io.gfile.GFile(os.path.join(blessing.uri, name), "w") as file:
            file.write("".join(f"{problem}\n" for problem in verdict.problems))
        write_json(os.path.join(blessing.uri, VERDICT_FILE), dataclasses.asdict(verdict))
        blessing.set_int_custom_property(BLESSED_KEY, int(verdict.blessed))
        blessing.set_int_custom_property(MODEL_ID, model.id)  # for later baselines
        blessing.set_string_custom_property("reason", "; ".join(verdict.problems))


class ServingValidator(
    Stage,
    executor=Executor,
    inputs={"model": standard_artifacts.Model, "model_blessing": standard_artifacts.ModelBlessing},
    parameters={"limits": str, "code": str},
    outputs={"blessing": standard_artifacts.InfraBlessing},
):
    """Gives a `blessing` (with `verdict.json`) to a `model` that is served within `limits` (`ServingLimits`)."""
