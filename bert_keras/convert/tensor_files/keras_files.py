"""HDF5 files of Keras, and the names of transformers' TensorFlow and Flax classes (versions 2 to 4).

`tf_model.h5` has the group of a layer, the model's name, and the name of a weight, which `model.safetensors` of the
same classes and the parts of a `tf_model.h5` in parts have alone; Flax's names are much the same:
    bert/tf_bert_model/bert/encoder/layer_._0/attention/self/query/kernel:0     tf_model.h5
    bert/encoder/layer_._0/attention/self/query/kernel:0                        model.safetensors
    bert/encoder/layer/0/attention/self/query/kernel                            flax_model.msgpack
    bert.encoder.layer.0.attention.self.query.weight                            PyTorch's, transposed
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from bert_keras.convert.families.weight import StoredTensor
from bert_keras.errors import InputError
from bert_keras.files import check_download

_KERNEL = re.compile(r"(^|/)kernel(:\d+)?$")
# `mlm___cls` is a layer with another name in PyTorch, `layer_._0` is in a list.
_RENAMED = (
    (r":\d+$", ""),
    (r"(^|/)[^/]*___", r"\1"),
    (r"_\._|/+", "."),
    (r"(^|\.)(gamma|scale|kernel|embeddings?)$", r"\1weight"),
    (r"(^|\.)beta$", r"\1bias"),
)


def check_hdf5(path: str) -> None:
    """Raise InputError for an HDF5 file that is truncated or whose index is damaged; the weights are not read."""
    import h5py

    check_download(path)
    try:
        with h5py.File(path) as file:
            file.visititems(lambda name, item: None)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise InputError(f"{path} is damaged or incomplete ({error}); copy it again") from error


def tensors_of_keras_file(path: str, files: contextlib.ExitStack) -> list[StoredTensor]:
    """The tensors of `tf_model.h5` or a part of one, without groups and the model's name; `files` closes it."""
    import h5py

    check_hdf5(path)
    file = files.enter_context(h5py.File(path))
    datasets: dict[str, Any] = {}
    file.visititems(lambda name, item: datasets.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    if "keras_version" not in file.attrs or any(name.count("/") < 2 for name in datasets):  # a part has no groups
        return [_stored(name, path, data) for name, data in datasets.items()]
    split = {name: name.split("/", 2) for name in datasets}
    # A model that was built by its layers gave its name to none.
    starts = {(group, model) for group, model, _ in split.values()}
    is_named = len({model for _, model in starts}) == 1 or all(group != model for group, model in starts)
    tensors: dict[str, StoredTensor] = {}
    for name, (_, model, rest) in split.items():
        # Layers that share embeddings have them each in their group.
        short = rest if is_named else f"{model}/{rest}"
        tensors.setdefault(short, _stored(short, path, datasets[name]))
    return list(tensors.values())


def _stored(name: str, path: str, data: Any) -> StoredTensor:
    return StoredTensor(name, path, tuple(data.shape), lambda: data[()])


def as_in_pytorch(tensors: Iterable[StoredTensor]) -> list[StoredTensor]:
    """Tensors of TensorFlow's or Flax's classes under the names, and in the layout, that PyTorch's classes have."""
    named: dict[str, StoredTensor] = {}
    for tensor in tensors:
        name = tensor.name
        for pattern, new in _RENAMED:
            name = re.sub(pattern, new, name)
        named[name] = dataclasses.replace(_transposed(tensor) if _KERNEL.search(tensor.name) else tensor, name=name)
    # ALBERT's head has two biases in TensorFlow, and adds the decoder's.
    unused = {name.replace(".decoder.bias", ".bias") for name in named if name.endswith(".decoder.bias")}
    return [tensor for name, tensor in named.items() if name not in unused]


def _transposed(tensor: StoredTensor) -> StoredTensor:
    return dataclasses.replace(tensor, shape=tensor.shape[::-1], read=lambda: tensor.read().T)
