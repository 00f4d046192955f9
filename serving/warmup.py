"""Replays the requests recorded beside a model, as TensorFlow Serving does before a version takes over.

The file is `assets.extra/tf_serving_warmup_requests`: TFRecords of `tensorflow.serving.PredictionLog`.
"""

from serving import tensors
from serving.protos import PredictionLog
from serving.servable import Servable

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"


def warm_up(servable: Servable) -> int:
    """Answers every recorded Predict request once, and returns how many; what one raises, it raises.

    A version without the file counts as warm. Records of the other methods are passed over.
    """
    path = servable.path / WARMUP_FILE
    if not path.is_file():
        return 0
    import tensorflow as tf

    answered = 0
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        log = PredictionLog.FromString(record)
        if log.WhichOneof("log_type") == "predict_log":
            request = log.predict_log.request
            inputs = {name: tensors.to_array(proto) for name, proto in request.inputs.items()}
            servable.predict(request.model_spec.signature_name, inputs, request.output_filter)
            answered += 1
    return answered
