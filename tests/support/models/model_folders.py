"""Folders of models in memory, in every format, and what is read of them, with the weights."""

import functools
import json

import numpy as np
from safetensors.numpy import load_file, save_file

from bert_keras.convert.formats import FORMATS, read_folder
from bert_keras.convert.model_folder import ModelFolder
from bert_keras.convert.weight_copy import variables_by_path


def write(format_, model, tokenizer, directory, family=None, **fields):
    """Write a model; `fields` are those of `ModelFolder.in_memory`."""
    return FORMATS[format_].write(ModelFolder.in_memory(model, tokenizer, family, **fields), str(directory))


def read(format_, directory, cased=None):
    """Read a folder with its weights, whose errors come here; None: the format is that of its files."""
    folder = read_folder(str(directory), cased, format_).without_task()
    _ = folder.networks
    return folder


read_any = functools.partial(read, None)
read_huggingface, write_huggingface = functools.partial(read, "hf"), functools.partial(write, "hf")
read_keras_hub, write_keras_hub = functools.partial(read, "keras-hub"), functools.partial(write, "keras-hub")
read_pushed, write_pushed = functools.partial(read, "bert-tfx"), functools.partial(write, "bert-tfx")
read_tf1, write_tf1 = functools.partial(read, "tf1"), functools.partial(write, "tf1")


def assert_equal(ours, theirs, but=()):
    """Two models have the same weights, bit for bit, apart from paths that begin with `but`."""
    ours, theirs = variables_by_path(ours), variables_by_path(theirs)
    assert ours.keys() == theirs.keys()
    for path in ours:
        if not path.startswith(tuple(but)):
            np.testing.assert_array_equal(ours[path], theirs[path], err_msg=path)


def change_tensors(directory, change):
    """Replace the tensors by name in a Hugging Face folder by what `change` makes of them."""
    tensors = change(load_file(directory / "model.safetensors"))
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, directory / "model.safetensors")


def change_config(directory, **fields):
    """Change fields of a Hugging Face folder's `config.json`."""
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **fields}))


def without(*prefixes):
    """A change: the tensors whose names do not begin so."""
    return lambda tensors: {name: value for name, value in tensors.items() if not name.startswith(prefixes)}


def put(name, value):
    """A change: one more tensor, or another."""
    return lambda tensors: {**tensors, name: value}
