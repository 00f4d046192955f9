"""Which ops a SavedModel may hold, so that TensorFlow Serving can run it; a model with another one is not exported.

TensorFlow Serving loads no libraries: it has the ops that are linked into it, and says of any other one "Op type not
registered", when the model is loaded or only when it is asked. tensorflow_serving/model_servers/BUILD (`server_lib`)
links

    TensorFlow's own ops    here: those of `tf.raw_ops`, which has none that a library registered later
    TF Text's               `@org_tensorflow_text//tensorflow_text:ops_lib`, with SentencePiece's; here: `TEXT_OPS`
    one of TensorFlow Decision Forests, for which this project has no use: refused

Core ops are those of this TensorFlow: TensorFlow Serving must be of the same release or a later one. Its TF Text is
older, though: 2.10 had no FastBertNormalize (tensorflow/serving#2064), and 2.18 still linked TF Text 2.12.1 and so had
no TFText>RoundRobinTrim (tensorflow/serving#2267, #4057).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from bert_keras.errors import StageError

SAVED_MODEL_FILE = "saved_model.pb"
# Of those that TF Text 2.16.1 registers the old ones: none whose name begins with "TFText>", which newer ones' do, and
# neither FastBertNormalize nor its companions FastWordpieceTokenizeWithOffsets and PhraseTokenize.
TEXT_OPS = frozenset(
    {
        "CaseFoldUTF8",
        "ConstrainedSequence",
        "FindSourceOffsets",
        "MaxSpanningTree",
        "NormalizeUTF8",
        "NormalizeUTF8WithOffsetsMap",
        "RegexSplitWithOffsets",
        "RougeL",
        "SentenceFragments",
        "SentenceFragmentsV2",
        "SentencepieceDetokenizeOp",
        "SentencepieceIdToStringOp",
        "SentencepieceOp",
        "SentencepieceStringToIdOp",
        "SentencepieceTokenizeOp",
        "SentencepieceTokenizeWithOffsetsOp",
        "SentencepieceVocabSizeOp",
        "SplitMergeTokenizeWithOffsets",
        "TokenizerFromLogits",
        "UnicodeScriptTokenizeWithOffsets",
        "WhitespaceTokenizeWithOffsets",
        "WordpieceTokenizeWithOffsets",
    }
)
_PYTHON, _CUDNN = "calls Python, which a model server does not run", "runs on NVIDIA's cuDNN and nowhere else"
# TensorFlow's own, which are linked but cannot do their work in a server.
UNSERVABLE_OPS = {
    "PyFunc": _PYTHON,
    "PyFuncStateless": _PYTHON,
    "EagerPyFunc": _PYTHON,
    "CudnnRNN": _CUDNN,
    "CudnnRNNV2": _CUDNN,
    "CudnnRNNV3": _CUDNN,
}
_MOST_TOLD = 3


def save_servable(module: tf.Module, directory: str, signatures: Mapping[str, Callable]) -> None:
    """`tf.saved_model.save`; a model that TensorFlow Serving could not run is not left there.

    Raises:
        StageError: the graph holds ops that it does not have; names op, node, function and reason.
    """
    tf.saved_model.save(module, directory, signatures=signatures)
    path = posixpath.join(directory, SAVED_MODEL_FILE)
    with tf.io.gfile.GFile(path, "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    refused = [text for graph in model.meta_graphs for text in refused_ops(graph.graph_def)]
    if not refused:
        return
    # Without this file it is a model to nobody.
    tf.io.gfile.remove(path)
    more = f", and {len(refused) - _MOST_TOLD} more" if len(refused) > _MOST_TOLD else ""
    raise StageError(
        f"the model is not exported, TensorFlow Serving could not run it: {'; '.join(refused[:_MOST_TOLD])}{more} "
        "(bert_keras/servable_ops.py says which ops it has)"
    )


def refused_ops(graph: graph_pb2.GraphDef) -> list[str]:
    """Each node of a graph and of its functions whose op TensorFlow Serving cannot run, with the reason."""
    functions = {function.signature.name for function in graph.library.function}
    bodies = [("the graph", graph.node), *((f.signature.name, f.node_def) for f in graph.library.function)]
    found = []
    for body, nodes in bodies:
        for node in nodes:
            # A function can be called by its name in place of an op's.
            reason = "" if node.op in functions else why_refused(node.op)
            if reason:
                found.append(f"op {node.op} (node {node.name} of {body}) {reason}")
    return found


def why_refused(op: str) -> str:
    """Why TensorFlow Serving cannot run an op; "" if it can.

    >>> why_refused("MatMul")
    ''
    >>> why_refused("XlaLaunch")
    'is not linked into it'
    """
    if op in UNSERVABLE_OPS:
        return UNSERVABLE_OPS[op]
    return "" if op in TEXT_OPS or hasattr(tf.raw_ops, op) else "is not linked into it"
