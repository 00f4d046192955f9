"""The engines that compute a model's signatures, for the server and for `bert-tfx apply`."""

from pathlib import Path

from serving.models.engine_servable import EngineServable
from serving.models.store import TENSORFLOW, Engines
from serving.scheduling.batching_parameters import BatchingSettings
from serving.scheduling.row_load import Budget


def engines(engine: str, budget: Budget | None = None) -> Engines:
    """Loaders of versions, by the file that selects them, for a value of `--engine`.

    `budget` limits the calls of other engines than TensorFlow, which answer whole files then; None: for the server.
    """

    def load(name: str, version: int, path: Path, batching: BatchingSettings | None) -> EngineServable:
        from bert_keras.convert.onnx.answers import OnnxModel

        model = OnnxModel(str(path), (batching or BatchingSettings()).num_batch_threads, whole_files=budget is not None)
        return EngineServable(name, version, path, model.signatures, batching, budget)

    onnx: Engines = dict.fromkeys(("openvino_model.xml", "model.onnx"), load)
    return {"auto": {**onnx, **TENSORFLOW}, "tensorflow": TENSORFLOW, "onnx": onnx}[engine]
