"""The ops that TensorFlow Serving can run; a model with any other op is not exported.

TensorFlow Serving loads no libraries: it has only the ops that are linked into it, and reports "Op type not registered"
for others, when the model is loaded or only at a request. tensorflow_serving/model_servers/BUILD (`server_lib`) links

    TensorFlow's own ops    here: those of `tf.raw_ops`, which excludes ops that a library registered later
    TF Text's               `@org_tensorflow_text//tensorflow_text:ops_lib`, with SentencePiece's; here: `TEXT_OPS`
    one of TensorFlow Decision Forests, unused in this project: refused

Core ops are those of this TensorFlow: TensorFlow Serving must have the same release or a later one. Its TF Text is
older, though: 2.10 had no FastBertNormalize (tensorflow/serving#2064), and 2.18 still linked TF Text 2.12.1 and so had
no TFText>RoundRobinTrim (tensorflow/serving#2267, #4057).
"""

import posixpath
from collections.abc import Callable, Mapping

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from bert_keras.errors import StageError

SAVED_MODEL_FILE = "saved_model.pb"
# The old ops of TF Text 2.16.1: without names that begin with "TFText>", as newer ones' do, and without
# FastBertNormalize and its companions FastWordpieceTokenizeWithOffsets and PhraseTokenize.
_OLD_OPS = (
    "CaseFoldUTF8 ConstrainedSequence FindSourceOffsets MaxSpanningTree NormalizeUTF8 "
    "NormalizeUTF8WithOffsetsMap RegexSplitWithOffsets RougeL SentenceFragments SentenceFragmentsV2 "
    "SentencepieceDetokenizeOp SentencepieceIdToStringOp SentencepieceOp SentencepieceStringToIdOp "
    "SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp SentencepieceVocabSizeOp "
    "SplitMergeTokenizeWithOffsets TokenizerFromLogits UnicodeScriptTokenizeWithOffsets "
    "WhitespaceTokenizeWithOffsets WordpieceTokenizeWithOffsets"
)
TEXT_OPS = frozenset(_OLD_OPS.split())
# TensorFlow's own ops that are linked but do not work in a server.
UNSERVABLE_OPS = {
    **dict.fromkeys(("PyFunc", "PyFuncStateless", "EagerPyFunc"), "calls Python, which a model server does not run"),
    **dict.fromkeys(("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"), "runs only on NVIDIA's cuDNN"),
}
_MAX_REPORTED = 3


def save_servable(module: tf.Module, directory: str, signatures: Mapping[str, Callable]) -> None:
    """Save a SavedModel; remove it again, with a StageError, if it has ops that TensorFlow Serving lacks."""
    tf.saved_model.save(module, directory, signatures=signatures)
    path = posixpath.join(directory, SAVED_MODEL_FILE)
    with tf.io.gfile.GFile(path, "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    refused = [text for graph in model.meta_graphs for text in refused_ops(graph.graph_def)]
    if not refused:
        return
    # Without this file no program recognises a model.
    tf.io.gfile.remove(path)
    more = f", and {len(refused) - _MAX_REPORTED} more" if len(refused) > _MAX_REPORTED else ""
    raise StageError(
        f"the model is not exported, TensorFlow Serving could not run it: {'; '.join(refused[:_MAX_REPORTED])}{more} "
        "(bert_keras/saved_model/servable_ops.py lists its ops)"
    )


def refused_ops(graph: graph_pb2.GraphDef) -> list[str]:
    """The nodes of a graph and its functions whose ops TensorFlow Serving cannot run, with the reasons."""
    functions = {function.signature.name for function in graph.library.function}
    bodies = [("the graph", graph.node), *((f.signature.name, f.node_def) for f in graph.library.function)]
    refused = []
    for body, nodes in bodies:
        for node in nodes:
            # A function can be called by its name instead of an op's.
            reason = "" if node.op in functions else why_refused(node.op)
            if reason:
                refused.append(f"op {node.op} (node {node.name} of {body}) {reason}")
    return refused


def why_refused(op: str) -> str:
    """The reason why TensorFlow Serving cannot run an op; "" if it can."""
    if op in UNSERVABLE_OPS:
        return UNSERVABLE_OPS[op]
    return "" if op in TEXT_OPS or hasattr(tf.raw_ops, op) else "is not linked into it"
