"""What a signature makes of a model's weights alone, made once, when a version is loaded.

Query, key and value kernels are put side by side, kernels are cast to bfloat16, gammas are reshaped: a graph that is
exported for whatever weights does so in every call. Of a single short text it was a quarter of the time.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

_NEVER = ("Placeholder", "PlaceholderWithDefault", "Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond")
# What leaves a weight as it is.
_AS_IT_IS = ("VarHandleOp", "ReadVariableOp", "Identity")


def with_prepared_weights(parts: Mapping[str, Any], graph: Any) -> tuple[dict[str, Any], list[Any]]:
    """`parts` that read such results from variables, and the ops of `graph` that make these of a session's weights.

    Parts that make the same of the same weights share a variable. The weights must not change once the ops have run.

    Args:
        parts: GraphDefs with their functions inlined (`serving.graph_parts`).
        graph: the model's, which gets the ops.
    """
    import tensorflow as tf

    handles: dict[str, Any] = {}
    assigned: list[Any] = []
    prepared = {}
    with graph.as_default():
        for key, part in parts.items():
            names = _results(part)
            values = _made(part, names)
            for name, value in values.items():
                if name not in handles:
                    handles[name] = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=name)
                    assigned.append(tf.raw_ops.AssignVariableOp(resource=handles[name], value=value))
            prepared[key] = _reading(part, names, values)
    return prepared, assigned


def _reading(part: Any, names: Mapping[str, str], values: Mapping[str, Any]) -> Any:
    """`part` that takes `values` from variables where it took them from nodes."""
    import tensorflow as tf

    reading = tf.compat.v1.GraphDef()
    reading.CopyFrom(part)
    weights = {f"^{node.name}" for node in part.node if node.op in _AS_IT_IS[:2]}
    for node in reading.node:
        # Nothing has to wait for a weight, which never changes.
        inputs = [names.get(name.removesuffix(":0"), name) for name in node.input if name not in weights]
        node.ClearField("input")
        node.input.extend(inputs)
    for name, value in values.items():
        handle = reading.node.add(name=f"{name}/handle", op="VarHandleOp")
        handle.attr["shared_name"].s = name.encode()
        handle.attr["shape"].shape.CopyFrom(value.shape.as_proto())
        read = reading.node.add(name=name, op="ReadVariableOp", input=[handle.name])
        handle.attr["dtype"].type = read.attr["dtype"].type = value.dtype.as_datatype_enum
    used = {_node(name) for node in part.node for name in node.input}
    ends = [node.name for node in part.node if node.name not in used]
    return tf.compat.v1.graph_util.extract_sub_graph(reading, ends)


def _node(name: str) -> str:
    """The node that an input called `name` comes from."""
    return name.removeprefix("^").split(":")[0]


def _results(part: Any) -> dict[str, str]:
    """By the name of a node that others take such a result from: its variable's, a digest of how it is made of what."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(part, name="")
    nodes = {node.name: node for node in part.node}
    digests: dict[str, str] = {}  # of what is made of weights and constants alone
    weights: set[str] = set()  # of those: weights, and what is made of them
    made: set[str] = set()  # the latter alone
    results: dict[str, str] = {}
    for op in graph.get_operations():  # inputs come first, but in loops
        inputs = {tensor.op.name for tensor in op.inputs}
        if _can_be_made(op) and inputs <= digests.keys():
            digests[op.name] = _digest(nodes[op.name], [digests[tensor.op.name] for tensor in op.inputs])
            if op.type == "VarHandleOp" or inputs & weights:
                weights.add(op.name)
                if op.type not in _AS_IT_IS or inputs & made:
                    made.add(op.name)
        else:
            results |= {name: f"prepared_{digests[name]}" for name in inputs & made}
    return results


def _can_be_made(op: Any) -> bool:
    """Whether it gives one tensor, always the same one for the same inputs."""
    if op.type in ("Const", "VarHandleOp", "ReadVariableOp"):
        return True
    calls = any(value.HasField("func") or value.list.func for value in op.node_def.attr.values())
    stateless = not op.op_def.is_stateful and op.type not in _NEVER and not calls
    return stateless and len(op.outputs) == 1 and len(op.inputs) > 0


def _digest(node: Any, inputs: Sequence[str]) -> str:
    attributes = {name: node.attr[name] for name in sorted(node.attr) if not name.startswith("_")}
    parts = [
        node.op,
        *inputs,
        *(f"{name} {value.SerializeToString(deterministic=True)!r}" for name, value in attributes.items()),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _made(part: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """By the names of their variables: the results, made of the weights in the default graph."""
    import tensorflow as tf

    made = tf.compat.v1.GraphDef()
    made.CopyFrom(part)
    for node in made.node:  # nothing has to wait for anything: the weights are there
        inputs = [name for name in node.input if not name.startswith("^")]
        node.ClearField("input")
        node.input.extend(inputs)
    made = tf.compat.v1.graph_util.extract_sub_graph(made, list(names))
    tensors = tf.graph_util.import_graph_def(made, return_elements=[f"{name}:0" for name in names], name="prepared")
    return dict(zip(names.values(), tensors, strict=True))
