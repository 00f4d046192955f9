"""TensorFlow's checkpoints: of version 1, with names, and of version 2, with objects that know their variables' names.

Objects are found by their paths, which differ from program to program and from one version of Keras to the next:
    model/layer_with_weights-4/_attention_layer/_query_dense/kernel/.ATTRIBUTES/VARIABLE_VALUE
    variables/5/.ATTRIBUTES/VARIABLE_VALUE                  of a SavedModel
    transformer/layer_0/self_attention/query/kernel         the variable's name, in the graph of objects
"""

from __future__ import annotations

import contextlib
import functools
import glob
import math
import operator
import os
import posixpath
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_keras import files
from bert_keras.convert.families.weight import StoredTensor
from bert_keras.errors import InputError

_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
_LOWER_CASE = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
# Paths of an optimizer's variables.
_OPTIMIZER = re.compile(r"/\.OPTIMIZER_SLOT/|(^|/)_?optimizer/")


def is_checkpoint(path: str) -> bool:
    """True for the path of a checkpoint without the endings of its files."""
    return os.path.isfile(f"{path}.index")


def latest_checkpoint(directory: str) -> str | None:
    """The only checkpoint of a folder, or the one that its file `checkpoint` names, perhaps by another machine's path.

    Raises:
        InputError: there are several and no such file.
    """
    prefixes = [
        path.removesuffix(".index") for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*.index")))
    ]
    if len(prefixes) < 2:
        return prefixes[0] if prefixes else None
    import tensorflow as tf

    state = tf.train.get_checkpoint_state(directory)
    newest = os.path.join(directory, os.path.basename(state.model_checkpoint_path)) if state else None
    if newest not in prefixes:
        reason = f"its file `checkpoint` names {newest}, which is not there" if newest else "no file `checkpoint`"
        raise InputError(
            f"{directory} has {len(prefixes)} checkpoints and {reason}; convert one of them: {prefixes[-1]}"
        )
    return newest


class Checkpoint(NamedTuple):
    """The contents of a checkpoint.

    Attributes:
        tensors: those with axes, under the names of their variables, without an optimizer's.
        has_objects: whether TensorFlow 2 wrote it.
        lower_case: what TF Hub's SavedModels say of their vocabulary; None: nothing.
    """

    tensors: list[StoredTensor]
    has_objects: bool
    lower_case: bool | None


def read_checkpoint(prefix: str) -> Checkpoint:
    """The contents of a checkpoint, whose tensors are not yet read.

    Raises:
        InputError: a file is missing or damaged: the data files must be as long as the index says.
    """
    index = f"{prefix}.index"
    if not os.path.exists(index):
        raise InputError(f"{index} is missing; the checkpoint's files must be named {os.path.basename(prefix)}.*")

    files.check_no_pattern(prefix, "rename it")
    data_files = glob.glob(f"{glob.escape(prefix)}.data-*")
    for path in (index, *data_files):
        files.check_download(path)
    import tensorflow as tf

    with _damage_named(prefix):
        reader = tf.train.load_checkpoint(prefix)
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    # Strings, which are no weights, have no fixed size.
    needed = sum(math.prod(shape) * types[name].size for name, shape in shapes.items() if types[name] != tf.string)
    size = sum(map(os.path.getsize, data_files))
    if size < needed:
        raise _damaged(prefix, f"its data files have {size:,} bytes, its index lists {needed:,}")

    def read(key: str) -> Any:
        with _damage_named(prefix):
            return reader.get_tensor(key)

    has_objects = _OBJECTS in shapes
    names = {key: key for key in shapes}
    if has_objects:
        with _damage_named(prefix):
            names = _names(reader.get_tensor(_OBJECTS))
    tensors = [
        StoredTensor(name, index, tuple(shapes[key]), functools.partial(read, key))
        for key, name in sorted(names.items(), key=operator.itemgetter(1))
        # A training's numbers, as the step, have no axes. An optimizer's slot is named after its weight: WEIGHT/adam_m.
        if shapes.get(key) and posixpath.dirname(name) not in names.values()
    ]
    return Checkpoint(tensors, has_objects, bool(read(_LOWER_CASE)) if _LOWER_CASE in shapes else None)


def _names(graph: bytes) -> dict[str, str]:
    """The names of the variables in a graph of objects, by the keys of their tensors."""
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    nodes = TrackableObjectGraph.FromString(graph).nodes
    attributes = [attribute for node in nodes for attribute in node.attributes]
    return {a.checkpoint_key: a.full_name for a in attributes if not _OPTIMIZER.search(a.checkpoint_key)}


@contextlib.contextmanager
def _damage_named(prefix: str) -> Iterator[None]:
    """Raise TensorFlow's errors for an unreadable checkpoint (IndexError: truncated) as InputError."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        yield
    except (tf.errors.OpError, RuntimeError, IndexError, DecodeError) as error:
        raise _damaged(prefix, error) from error


def _damaged(prefix: str, reason: object) -> InputError:
    return InputError(f"{prefix} is damaged or incomplete ({reason}); copy its files again")
