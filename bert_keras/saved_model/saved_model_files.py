"""Files beside an exported SavedModel: warm-up requests, weights, configuration, vocabulary."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from bert_keras.models.backbone import BertBackbone
from bert_keras.models.layers import SelfAttention
from bert_keras.saved_model.settings import CONFIG_FILE, WEIGHTS_FILE
from bert_keras.tokenizers.protocol import Tokenizer
from bert_keras.tokenizers.vocabulary_files import VOCABULARY_SPEC_FILE, vocabulary_files, vocabulary_spec

# Precision -> Keras policy of the served copy, whose weights have the type of its computation.
_SERVED_POLICIES = {"float32": "float32", "mixed_bfloat16": "bfloat16"}
EXTRA_FOLDER, WARMUP_FILE = "assets.extra", "tf_serving_warmup_requests"

# A signature, and the strings of each input.
WarmupRequest = tuple[str, Mapping[str, Any]]
Signature: TypeAlias = tf.types.experimental.ConcreteFunction


def served_copy(model: keras.Model, precision: str) -> keras.Model:
    """A copy of a model that computes in `precision` (`ExportSettings`), independent of training.

    The copy cannot be trained. Its weights are stored as calls use them: query, key and value as one kernel, and in
    `mixed_bfloat16` all weights but those of layer normalisation in bfloat16.
    """
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy(_SERVED_POLICIES[precision])
    try:
        served = type(model).from_config(model.get_config())
        for layer in served._flatten_layers():
            if isinstance(layer, SelfAttention):
                layer.is_fused = True
            elif isinstance(layer, keras.layers.LayerNormalization):
                layer.dtype_policy = precision  # computes in float32
            elif isinstance(layer, keras.layers.LSTMCell):
                layer.recurrent_initializer = "zeros"  # Keras cannot draw the default in bfloat16
        served.build()
    finally:
        keras.mixed_precision.set_dtype_policy(before)
    pairs = list(zip(served._flatten_layers(), model._flatten_layers(), strict=True))
    for copy, trained in pairs:
        if isinstance(copy, SelfAttention):
            copy.fuse(trained)
        elif copy.built:
            weights: dict[str, keras.Variable] = {}
            trained.save_own_variables(weights)
            copy.load_own_variables(weights)
        if isinstance(copy, keras.layers.LayerNormalization):
            # Of [B, T, H]. For -1 Keras would reshape gamma and beta in each call.
            copy.axis = [2]
    for copy, trained in pairs:
        if isinstance(trained, BertBackbone) and trained.config.relative_attention == "disentangled":
            positions = copy.relative_positions(tf.zeros((1, 1), tf.int32))
            for ours, theirs in zip(copy.encoder_layers, trained.encoder_layers, strict=True):
                ours.attention.fuse_positions(theirs.attention, positions)
    return served


def traced(function: Callable, specs: Sequence[tf.TensorSpec]) -> Signature:
    """Trace a signature once; a `tf.function` would be traced again on saving and on every device."""
    # Served code never branches in Python on a tensor's values, so AutoGraph, a third of the time, is off.
    return tf.function(function, specs, autograph=False).get_concrete_function()


def write_warmup_requests(
    directory: str, signatures: Mapping[str, Signature], requests: Sequence[WarmupRequest]
) -> None:
    """Write the requests that TensorFlow Serving replays before a version of the SavedModel takes traffic.

    Each has the answer of the model in memory, which `components.serving_validator` compares with a server's;
    TensorFlow Serving ignores it. `requests`: requests, with inputs in the order of the signatures' arguments.
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
    """Compute in full float32 and, if possible, on the CPU, as a server on any machine does."""
    enabled = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        with tf.device("CPU:0"):
            return function(*(tf.constant(values, tf.string) for values in texts))
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(enabled)


def write_model_files(directory: str, model, config_json: str, tokenizer: Tokenizer) -> None:
    """Write weights, configuration and vocabulary, for further training."""
    spec = json.dumps(vocabulary_spec(tokenizer)) + "\n"
    write_texts(directory, {CONFIG_FILE: config_json, VOCABULARY_SPEC_FILE: spec, **vocabulary_files(tokenizer)})
    model.save_weights(os.path.join(directory, WEIGHTS_FILE))


def write_texts(directory: str, files: Mapping[str, str | bytes]) -> None:
    """Write texts, or bytes, by file name."""
    for name, text in files.items():
        with tf.io.gfile.GFile(os.path.join(directory, name), "w") as file:
            file.write(text)
