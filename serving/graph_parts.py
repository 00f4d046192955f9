"""What of a loaded model's graph computes one signature, optimised once.

TensorFlow would optimise a session's graph anew for every executable, and once a level for nested functions: for a
batched BERT three times the work. So each signature's part is inlined and optimised here, and the session does no more.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from serving.protos import SignatureDef

_numbers = itertools.count()


def optimised_part(graph: Any, signature: SignatureDef) -> Any:
    """The part of `graph` that the outputs of `signature` need, as a GraphDef with the same names for both ends."""
    import tensorflow as tf
    from tensorflow.python.grappler import tf_optimizer  # what TensorFlow's own converters use; it is not exported

    v1 = tf.compat.v1
    fetches = [info.name for info in signature.outputs.values()]
    meta_graph = v1.MetaGraphDef(graph_def=_needed(graph, fetches))
    # Where the optimiser looks for what to keep.
    meta_graph.collection_def["train_op"].node_list.value.extend(fetches)
    config = v1.ConfigProto()
    # A second round finds nothing more.
    config.graph_options.rewrite_options.meta_optimizer_iterations = 1
    config.graph_options.rewrite_options.min_graph_nodes = -1  # however small it is
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
    """`part` with other names for the functions that it still calls (of loops): the graph has them as they were."""
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
