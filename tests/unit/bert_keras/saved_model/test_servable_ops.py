"""Models with ops that TensorFlow Serving cannot run are refused, wherever in the graph the ops are."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import op_def_registry

from bert_keras.errors import StageError
from bert_keras.saved_model.servable_ops import TEXT_OPS, UNSERVABLE_OPS, refused_ops, save_servable

NUMBERS = [tf.TensorSpec([None], tf.float32, name="x")]


class Calling(tf.Module):
    """A signature whose loop body, a function of a function, calls `step`."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    @tf.function(input_signature=NUMBERS)
    def __call__(self, x):
        return {"y": tf.map_fn(self.step, x)}


def test_python_calls_are_refused_and_the_model_is_removed(tmp_path):
    model = Calling(lambda x: tf.numpy_function(lambda v: np.float32(v + 1), [x], tf.float32))
    with pytest.raises(StageError) as caught:
        save_servable(model, str(tmp_path), {"serving_default": model.__call__})
    message = str(caught.value)
    assert message.startswith("the model is not exported, TensorFlow Serving could not run it: op PyFunc (node ")
    assert "PyFunc of map_while_body" in message and "calls Python, which a model server does not run" in message
    assert "\n" not in message
    assert not (tmp_path / "saved_model.pb").exists()


def test_core_ops_and_old_ops_of_tf_text_are_exported(tmp_path):
    model = Calling(lambda x: tf.strings.to_number(tensorflow_text.normalize_utf8(tf.strings.as_string(x))))
    save_servable(model, str(tmp_path), {"serving_default": model.__call__})
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.signatures["serving_default"](x=tf.constant([1.5]))["y"].numpy().tolist() == [1.5]


def graph_of(*ops):
    """A graph with a function `f`, whose nodes have the ops, and one that calls it by its name."""
    graph = graph_pb2.GraphDef()
    graph.node.add(name="call", op="f")
    function = graph.library.function.add()
    function.signature.name = "f"
    for op in ops:
        function.node_def.add(name=f"n{op}", op=op)
    return graph


def test_each_refused_op_has_a_reason():
    allowed = ["MatMul", "StatefulPartitionedCall", "WordpieceTokenizeWithOffsets", "SentencepieceOp", "f"]
    assert refused_ops(graph_of(*allowed)) == []
    # Newer ops of TF Text, an op of XLA's and nobody's.
    refused = ["TFText>RoundRobinTrim", "FastBertNormalize", "XlaLaunch", "ZeroOut"]
    assert refused_ops(graph_of("MatMul", *refused)) == [
        f"op {op} (node n{op} of f) is not linked into it" for op in refused
    ]
    (text,) = refused_ops(graph_of("CudnnRNNV3"))
    assert text.endswith("runs only on NVIDIA's cuDNN")


def test_the_listed_ops_exist():
    """TF Text registers the listed text ops, which are not TensorFlow's; the refused ops are TensorFlow's."""
    for op in TEXT_OPS:
        assert op_def_registry.get(op) is not None and not hasattr(tf.raw_ops, op), op
    for op in UNSERVABLE_OPS:
        assert hasattr(tf.raw_ops, op), op
