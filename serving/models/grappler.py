"""Extracts and optimises the subgraph of one signature.

A session would optimise its graph again for every executable, and nested functions once per level: three times the work
for a batched BERT. So each signature's subgraph is inlined and optimised here, and the session's optimiser is disabled.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from serving.protos import SignatureDef

_numbers = itertools.count()


def optimised_part(graph: Any, signature: SignatureDef) -> Any:
    """GraphDef of the part of `graph` that computes `signature`, with unchanged input and output names."""
    import tensorflow as tf
    from tensorflow.python.grappler import tf_optimizer  # TensorFlow's own converters use it; it is not exported

    v1 = tf.compat.v1
    fetches = [info.name for info in signature.outputs.values()]
    meta_graph = v1.MetaGraphDef(graph_def=_needed(graph, fetches))
    if not tf.config.list_physical_devices("GPU"):
        # The optimiser fuses products with biases only where it knows the device (TensorFlow's remapper.cc).
        for node in meta_graph.graph_def.node:
            node.device = node.device or "/job:localhost/replica:0/task:0/device:CPU:0"
    # The optimiser keeps the nodes that it finds there.
    meta_graph.collection_def["train_op"].node_list.value.extend(fetches)
    config = v1.ConfigProto()
    # A second round makes no difference.
    config.graph_options.rewrite_options.meta_optimizer_iterations = 1
    config.graph_options.rewrite_options.min_graph_nodes = -1  # for graphs of any size
    return _renamed(tf_optimizer.OptimizeGraph(config, meta_graph))


def _needed(graph: Any, fetches: list[str]) -> Any:
    import tensorflow as tf

    names: set[str] = set()
    waiting = [graph.get_tensor_by_name(fetch).op for fetch in fetches]
    while waiting:
        op = waiting.pop()
        if op.name not in names:
            names.add(op.name)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    whole = graph.as_graph_def()
    nodes = [node for node in whole.node if node.name in names]
    return tf.compat.v1.GraphDef(node=nodes, library=whole.library, versions=whole.versions)


def _renamed(part: Any) -> Any:
    """`part` with new names for the functions that loops still call: the graph has their original versions."""
    number = next(_numbers)
    new = {function.signature.name: f"{function.signature.name}_part_{number}" for function in part.library.function}
    for function in part.library.function:
        function.signature.name = new[function.signature.name]
    for node in _nodes(part):
        node.op = new.get(node.op, node.op)
        for value in node.attr.values():
            for called in (value.func, *value.list.func) if value.HasField("func") else value.list.func:
                called.name = new.get(called.name, called.name)
    return part


def _nodes(part: Any) -> Iterator[Any]:
    yield from part.node
    for function in part.library.function:
        yield from function.node_def
