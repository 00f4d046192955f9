"""TensorFlow Serving's messages and stubs, imported without importing TensorFlow.

`tensorflow_serving.apis` needs only generated protos inside the `tensorflow` package, but importing them runs all of
TensorFlow's `__init__`: 3 to 11 s, compared with 0.1 s here. They are therefore imported under an empty stand-in for
`tensorflow`, which is removed at once. A later `import tensorflow` loads the real package and shares these message
classes (protobuf keeps one class per descriptor).
"""

# ruff: noqa: F401  the messages are for other modules

import contextlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator


@contextlib.contextmanager
def without_running_tensorflow(keep: bool) -> Iterator[None]:
    """Import modules inside `tensorflow` without its `__init__`, unless that has run.

    Args:
        keep: whether the modules stay imported, as extensions in C must, which load once.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")
    stand_in = types.ModuleType("tensorflow")
    stand_in.__path__ = list(spec.submodule_search_locations)
    sys.modules["tensorflow"] = stand_in
    try:
        yield
    finally:
        for name in ["tensorflow"] if keep else [n for n in sys.modules if n.split(".")[0] == "tensorflow"]:
            del sys.modules[name]


with without_running_tensorflow(keep=False):
    from tensorflow.core.example.example_pb2 import Example
    from tensorflow.core.framework import types_pb2
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.tensor_pb2 import TensorProto
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef, TensorInfo
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
    from tensorflow_serving.apis.classification_pb2 import (
        ClassificationRequest,
        ClassificationResponse,
        ClassificationResult,
    )
    from tensorflow_serving.apis.get_model_metadata_pb2 import (
        GetModelMetadataRequest,
        GetModelMetadataResponse,
        SignatureDefMap,
    )
    from tensorflow_serving.apis.get_model_status_pb2 import (
        GetModelStatusRequest,
        GetModelStatusResponse,
        ModelVersionStatus,
    )
    from tensorflow_serving.apis.input_pb2 import Input
    from tensorflow_serving.apis.model_management_pb2 import ReloadConfigRequest, ReloadConfigResponse
    from tensorflow_serving.apis.model_pb2 import ModelSpec
    from tensorflow_serving.apis.model_service_pb2_grpc import (
        ModelServiceServicer,
        ModelServiceStub,
        add_ModelServiceServicer_to_server,
    )
    from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
    from tensorflow_serving.apis.prediction_service_pb2_grpc import (
        PredictionServiceServicer,
        PredictionServiceStub,
        add_PredictionServiceServicer_to_server,
    )
    from tensorflow_serving.apis.regression_pb2 import RegressionRequest, RegressionResponse, RegressionResult
    from tensorflow_serving.config.model_server_config_pb2 import ModelConfig as ModelConfigProto
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

    for _module in ("model_service_pb2", "prediction_service_pb2"):
        # They register the services' descriptors in protobuf's pool, where server reflection finds them, and then fail:
        # the old compiler that made them sets attributes that are read-only in today's protobuf.
        with contextlib.suppress(AttributeError):
            importlib.import_module(f"tensorflow_serving.apis.{_module}")

MODEL_SERVICE = "tensorflow.serving.ModelService"
PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
