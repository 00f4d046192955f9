"""What lies beside an exported SavedModel: requests to warm it up; weights, configuration, vocabulary."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from bert_keras.byte_bpe import ByteBpeTokenizer
from bert_keras.features import VOCABULARY_SPEC_FILE
from bert_keras.interchange.vocabularies import vocabulary_files
from bert_keras.tokenization import Tokenizer
from bert_keras.tokenizer import BertTokenizer

WEIGHTS_FILE = "model.weights.h5"
CONFIG_FILE = "bert_config.json"
EXTRA_FOLDER, WARMUP_FILE = "assets.extra", "tf_serving_warmup_requests"

# A signature, and the strings of each input.
WarmupRequest = tuple[str, Mapping[str, Any]]
Signature: TypeAlias = tf.types.experimental.ConcreteFunction


def served_copy(model: keras.Model, precision: str) -> keras.Model:
    """A copy of a model that computes in `precision` (`ExportSettings`), whatever it was trained in."""
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy(precision)
    try:
        served = type(model).from_config(model.get_config())
        served.build()
    finally:
        keras.mixed_precision.set_dtype_policy(before)
    served.set_weights(model.get_weights())
    return served


def traced(function: Callable, specs: Sequence[tf.TensorSpec]) -> Signature:
    """A signature, traced once: a `tf.function` is traced again when it is saved, and on every device that it runs on.

    Nothing that is served branches in Python on what a tensor holds: AutoGraph would cost a third of the time.
    """
    return tf.function(function, specs, autograph=False).get_concrete_function()


def write_warmup_requests(
    directory: str, signatures: Mapping[str, Signature], requests: Sequence[WarmupRequest]
) -> None:
    """The requests that TensorFlow Serving replays before a version of the SavedModel in `directory` takes traffic.

    Beside each is what the model in memory answers, by which `components.serving_validator` judges what a server does;
    TensorFlow Serving passes over it.

    Args:
        directory: of the SavedModel.
        signatures: of the model in memory.
        requests: their inputs in the order of the signatures' arguments.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    extra = os.path.join(directory, EXTRA_FOLDER)
    tf.io.gfile.makedirs(extra)
    with tf.io.TFRecordWriter(os.path.join(extra, WARMUP_FILE)) as writer:
        for name, inputs in requests:
            log = prediction_log_pb2.PredictionLog()
            predict = log.predict_log
            predict.request.model_spec.signature_name = name
            for argument, texts in inputs.items():
                predict.request.inputs[argument].CopyFrom(tf.make_tensor_proto(texts, dtype=tf.string))
            for output, value in _answers(signatures[name], list(inputs.values())).items():
                predict.response.outputs[output].CopyFrom(tf.make_tensor_proto(value.numpy()))
            writer.write(log.SerializeToString(deterministic=True))


def _answers(function: Signature, texts: Sequence[Any]) -> dict[str, tf.Tensor]:
    """In full float32 and, where it can be, on the CPU, as a server on any machine would."""
    was = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        with tf.device("CPU:0"):
            return function(*(tf.constant(values, tf.string) for values in texts))
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(was)


def write_model_files(directory: str, model, config_json: str, tokenizer: Tokenizer) -> None:
    """Weights, configuration and vocabulary, for whoever goes on from the model.

    The vocabulary is `vocab.txt`, of byte-level BPE `vocab.json` and `merges.txt`; its spec says which.
    """
    assert isinstance(tokenizer, (BertTokenizer, ByteBpeTokenizer))
    spec: dict[str, Any] = {"algorithm": "byte_bpe"}
    if isinstance(tokenizer, BertTokenizer):
        spec = {"algorithm": "wordpiece", "lower_case": tokenizer.lower_case}
    texts = {CONFIG_FILE: config_json, VOCABULARY_SPEC_FILE: json.dumps(spec) + "\n"}
    write_texts(directory, texts | vocabulary_files(tokenizer))
    model.save_weights(os.path.join(directory, WEIGHTS_FILE))


def write_texts(directory: str, files: Mapping[str, str]) -> None:
    """Writes texts by the names of their files."""
    for name, text in files.items():
        with tf.io.gfile.GFile(os.path.join(directory, name), "w") as file:
            file.write(text)
