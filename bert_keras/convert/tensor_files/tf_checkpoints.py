"""TensorFlow's checkpoints, as google-research/bert names their variables.

Those of TensorFlow 2 are of objects, whose paths differ from program to program; their graph has the variables' names.
For BERT the TF Model Garden, where TF Hub's SavedModels come from too, has had two generations of names, perhaps in a
model's scope (`official/nlp/tools/tf1_bert_checkpoint_converter_lib.py`):
    model/layer_with_weights-4/_attention_layer/_output_dense/kernel/.ATTRIBUTES/VARIABLE_VALUE    a path
    variables/11/.ATTRIBUTES/VARIABLE_VALUE                                                        in a SavedModel
    transformer/layer_0/self_attention/attention_output/kernel      [heads, width of a head, H]
    bert_model/encoder/layer_0/self_attention_output/kernel         of 2019
    bert/encoder/layer_0/attention/output/dense/kernel              [H, H], google-research/bert's
"""

import contextlib
import dataclasses
import functools
import glob
import math
import os
import posixpath
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_keras import files
from bert_keras.convert.families.weight import StoredTensor
from bert_keras.errors import InputError

# Variables of encoders and pre-training heads; others are a task's head, as run_classifier.py's `output_weights`.
_MODEL = re.compile(r"(bert|electra|generator|cls/predictions|cls/seq_relationship|\w+_predictions)/")
_OBJECTS, _LOWER_CASE = "_CHECKPOINTABLE_OBJECT_GRAPH", "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
# Paths of an optimizer's variables.
_OPTIMIZER = re.compile(r"/\.OPTIMIZER_SLOT/|(^|/)_?optimizer/")
_RENAMED = (
    (r"^(?:.+/)?(?:transformer|encoder)/(?=layer_\d+/)", "bert/encoder/"),
    (r"/self_attention/(?=(?:query|key|value)/)", "/attention/self/"),
    (r"/self_attention(?:/attention)?_output/", "/attention/output/dense/"),
    (r"/self_attention_layer_norm/", "/attention/output/LayerNorm/"),
    (r"/output_layer_norm/", "/output/LayerNorm/"),
    (r"(?<=\d)/(intermediate|output)/(?=kernel|bias)", r"/\1/dense/"),
    (r"^(?:.+/)?word_embeddings/embeddings$", "bert/embeddings/word_embeddings"),
    (r"^(?:.+/)?position_embeddings?(?:/embeddings)?$", "bert/embeddings/position_embeddings"),
    (r"^(?:.+/)?type_embeddings(?:/embeddings)?$", "bert/embeddings/token_type_embeddings"),
    (r"^(?:.+/)?(?:embeddings|embedding_postprocessor)/layer_norm/", "bert/embeddings/LayerNorm/"),
    (r"^(?:.+/)?(?:pooler_transform|next_sentence/pooler_dense)/", "bert/pooler/dense/"),
    (r"^(?:.+/)?cls/predictions/(?=transform/)", "cls/predictions/"),
    (r"^(?:.+/)?cls/predictions/output_bias(?:/bias)?$", "cls/predictions/output_bias"),
    (r"^(?:.+/)?(?:predictions/transform|next_sentence)/logits/bias$", "cls/seq_relationship/output_bias"),
    (r"^(?:.+/)?(?:predictions/transform|next_sentence)/logits/kernel$", "cls/seq_relationship/output_weights"),
)


class Checkpoint(NamedTuple):
    """The contents of a checkpoint, without an optimizer's."""

    tensors: dict[str, StoredTensor]  # those of encoder and pre-training heads by name, not yet read
    task_head: tuple[str, ...]  # names of the others, of a task's head
    num_heads: int  # attention heads of a checkpoint of objects; 0: the file does not say it
    lower_case: bool | None  # what TF Hub's SavedModels say of their vocabulary; None: nothing


def is_checkpoint(path: str) -> bool:
    """True for the path of a checkpoint without the endings of its files."""
    return os.path.isfile(f"{path}.index")


def latest_checkpoint(directory: str) -> str | None:
    """The checkpoint of a folder; of several the one that its file `checkpoint` names, be it by an older path.

    InputError: there are several, and none is named.
    """
    indexes = sorted(glob.glob(os.path.join(glob.escape(directory), "*.index")))
    prefixes = [index.removesuffix(".index") for index in indexes]
    if len(prefixes) < 2:
        return prefixes[0] if prefixes else None
    import tensorflow as tf

    state = tf.train.get_checkpoint_state(directory)
    newest = os.path.join(directory, os.path.basename(state.model_checkpoint_path)) if state else None
    if newest not in prefixes:
        reason = f"its file `checkpoint` names {newest}, which is missing" if newest else "no file `checkpoint`"
        count = f"{len(prefixes)} checkpoints"
        raise InputError(f"{directory} has {count} and {reason}; convert one of them: {prefixes[-1]}")
    return newest


def read_checkpoint(prefix: str) -> Checkpoint:
    """Read a checkpoint's index.

    InputError: a file is missing or damaged (the data files must be as long as the index says), or it is of objects
    that are no BERT.
    """
    index, data_files = f"{prefix}.index", glob.glob(f"{glob.escape(prefix)}.data-*")
    if not os.path.exists(index):
        raise InputError(f"{index} is missing; the checkpoint's files must be named {os.path.basename(prefix)}.*")

    files.check_no_pattern(prefix, "rename it")
    for path in (index, *data_files):
        files.check_download(path)
    import tensorflow as tf
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

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

    names = dict(zip(shapes, shapes, strict=True))  # key -> the variable's name
    if _OBJECTS in shapes:
        with _damage_named(prefix):
            nodes = TrackableObjectGraph.FromString(read(_OBJECTS)).nodes
        attributes = [attribute for node in nodes for attribute in node.attributes if attribute.full_name]
        names = {a.checkpoint_key: a.full_name for a in attributes if not _OPTIMIZER.search(a.checkpoint_key)}
    slotted = set(names.values())
    tensors = [
        StoredTensor(name, index, tuple(shapes[key]), functools.partial(read, key))
        for key, name in sorted(names.items())
        # A training's numbers, as the step, have no axes. An optimizer's slot is named after its weight: WEIGHT/adam_m.
        if shapes.get(key) and posixpath.dirname(name) not in slotted
    ]
    tensors, num_heads = _as_in_tf1(tensors, prefix) if _OBJECTS in shapes else (tensors, 0)
    head = tuple(tensor.name for tensor in tensors if not _MODEL.match(tensor.name))
    model = {tensor.name: tensor for tensor in tensors if tensor.name not in head}
    if len(model) + len(head) < len(tensors):
        raise InputError(f"{prefix} has two variables of one name; give a checkpoint of one model")
    return Checkpoint(model, head, num_heads, bool(read(_LOWER_CASE)) if _LOWER_CASE in shapes else None)


def _as_in_tf1(tensors: list[StoredTensor], prefix: str) -> tuple[list[StoredTensor], int]:
    """The Model Garden's variables under google-research/bert's names and in its layout, and the number of heads."""
    renamed, num_heads = [], 0
    has_own_pooler = any("next_sentence/pooler_dense/" in tensor.name for tensor in tensors)
    for tensor in tensors:
        name = tensor.name
        if has_own_pooler and "pooler_transform/" in name:
            continue  # not trained beside the head's own
        for pattern, new in _RENAMED:
            name = re.sub(pattern, new, name)
        renamed.append(_in_layout(dataclasses.replace(tensor, name=name)))
        if name == "bert/encoder/layer_0/attention/self/query/bias" and len(tensor.shape) == 2:
            num_heads = tensor.shape[0]
    if not num_heads:
        raise InputError(
            f"{prefix} is a checkpoint of TensorFlow 2, but not of a BERT of the TF Model Garden or TF Hub (it has "
            f"{', '.join(tensor.name for tensor in renamed[:3])}); take the model in Hugging Face's format"
        )
    return renamed, num_heads


def _in_layout(tensor: StoredTensor) -> StoredTensor:
    name, shape = tensor.name, tensor.shape
    if name == "cls/seq_relationship/output_weights":
        return tensor.transposed()
    if "/attention/self/" in name:
        axis = 1 if name.endswith("/kernel") else 0
        shape = (*shape[:axis], math.prod(shape[axis:]))
    elif name.endswith("/attention/output/dense/kernel"):
        shape = (math.prod(shape[:-1]), *shape[-1:])
    return dataclasses.replace(tensor, shape=shape, read=lambda: tensor.read().reshape(shape))


@contextlib.contextmanager
def _damage_named(prefix: str) -> Iterator[None]:
    """Raise the errors for an unreadable checkpoint (IndexError: truncated) as InputError."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        yield
    except (tf.errors.OpError, RuntimeError, IndexError, DecodeError) as error:
        raise _damaged(prefix, error) from error


def _damaged(prefix: str, reason: object) -> InputError:
    return InputError(f"{prefix} is damaged or incomplete ({reason}); copy its files again")
