"""Replays the requests recorded with a model before a version becomes available, as TensorFlow Serving does.

The file is `assets.extra/tf_serving_warmup_requests`: TFRecords of `tensorflow.serving.PredictionLog`.
"""

from collections.abc import Iterator

import grpc

from serving import errors, tensors
from serving.models.servable import Servable
from serving.protos import PredictionLog

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"


def warm_up(servable: Servable) -> int:
    """Answer every recorded Predict request once and return their number; errors pass through.

    A version without the file counts as warm. Records of other methods are ignored.
    """
    path = servable.path / WARMUP_FILE
    if not path.is_file():
        return 0
    answered = 0
    for record in _records(path.read_bytes()):
        log = PredictionLog.FromString(record)
        if log.WhichOneof("log_type") == "predict_log":
            request = log.predict_log.request
            inputs = {name: tensors.to_array(proto) for name, proto in request.inputs.items()}
            servable.predict(request.model_spec.signature_name, inputs, request.output_filter)
            answered += 1
    return answered


def _records(content: bytes) -> Iterator[bytes]:
    """Records of TFRecords (length, its checksum, record, its checksum), without TensorFlow, for other engines."""
    at = 0
    while at < len(content):
        length = int.from_bytes(content[at : at + 8], "little")
        if at + length + 16 > len(content):
            raise errors.ServingError(grpc.StatusCode.DATA_LOSS, f"{WARMUP_FILE}: truncated record at {at}")
        yield content[at + 12 : at + 12 + length]
        at += length + 16
