"""What lies beside an exported SavedModel: requests to warm it up; weights, configuration, vocabulary."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.byte_bpe import ByteBpeTokenizer
from bert_keras.features import VOCABULARY_SPEC_FILE
from bert_keras.interchange.vocabularies import vocabulary_files
from bert_keras.tokenization import Tokenizer
from bert_keras.tokenizer import BertTokenizer

WEIGHTS_FILE = "model.weights.h5"
CONFIG_FILE = "bert_config.json"
_WARMUP_FILE = "tf_serving_warmup_requests"

# A signature, and the strings of each input.
WarmupRequest = tuple[str, Mapping[str, Any]]


def write_warmup_requests(directory: str, requests: Sequence[WarmupRequest]) -> None:
    """The requests that TensorFlow Serving replays before a version of the SavedModel in `directory` takes traffic."""
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    def record(signature: str, inputs: Mapping[str, Any]) -> bytes:
        predict = predict_pb2.PredictRequest()
        predict.model_spec.signature_name = signature
        for name, texts in inputs.items():
            predict.inputs[name].CopyFrom(tf.make_tensor_proto(texts, dtype=tf.string))
        log = prediction_log_pb2.PredictLog(request=predict)
        return prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString(deterministic=True)

    extra = os.path.join(directory, "assets.extra")
    tf.io.gfile.makedirs(extra)
    with tf.io.TFRecordWriter(os.path.join(extra, _WARMUP_FILE)) as writer:
        for signature, inputs in requests:
            writer.write(record(signature, inputs))


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
