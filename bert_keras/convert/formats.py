"""The formats of a model's folder."""

import dataclasses
import glob
import os
from collections.abc import Callable
from typing import NamedTuple

from bert_keras.convert import bert_tfx, keras_hub, tf1
from bert_keras.convert.huggingface import folder as huggingface
from bert_keras.convert.huggingface import tensors
from bert_keras.convert.model_folder import ModelFolder, Written
from bert_keras.convert.tensor_files.tf_checkpoints import is_checkpoint
from bert_keras.errors import InputError
from bert_keras.notices import notify


class Format(NamedTuple):
    """A format: its reader, `read(directory, cased)`, and its writer."""

    read: Callable[[str, bool | None], ModelFolder]
    write: Callable[[ModelFolder, str], Written]


# By the format's name on the command line.
FORMATS = {
    "tf1": Format(tf1.read_tf1, tf1.write_tf1),
    "hf": Format(huggingface.read_huggingface, huggingface.write_huggingface),
    "keras-hub": Format(keras_hub.read_keras_hub, keras_hub.write_keras_hub),
    "bert-tfx": Format(bert_tfx.read_pushed, bert_tfx.write_pushed),
}
# Files that identify a format, checked in this order.
_SIGNS = (
    ("bert-tfx", ("bert_config.json", "model.weights.h5")),
    ("tf1", (tf1.CONFIG_FILE, "*.index")),
    ("keras-hub", (keras_hub.CONFIG_FILE, keras_hub.WEIGHTS_FILE)),
    ("hf", (tensors.CONFIG_FILE,)),
    ("tf1", ("*.index",)),  # an ELECTRA's, or the TF Model Garden's
    ("tf1", ("saved_model.pb", f"{tf1.SAVED_MODEL_VARIABLES}.index")),  # TF Hub's
)


def format_of(directory: str) -> str:
    """The format of a folder, a key of `FORMATS`; InputError if there is no such folder, or no such format."""
    if is_checkpoint(directory):
        folder = os.path.dirname(directory) or "."
        raise InputError(
            f"{directory}: is one checkpoint of the folder {folder}; give the folder, or make one of this checkpoint: "
            f"bert-tfx convert {directory} NEW --from tf1 --to hf --cased or --uncased"
        )
    if not os.path.isdir(directory):
        raise InputError(f"{directory}: no such folder; give the folder of a model")
    for format_, files in _SIGNS:
        if all(glob.glob(os.path.join(glob.escape(directory), file)) for file in files):
            return format_
    known = "; ".join(f"{format_}: {' and '.join(files)}" for format_, files in _SIGNS)
    raise InputError(f"{directory}: unknown model format; expected files: {known}")


def read_folder(directory: str, cased: bool | None = None, format_: str | None = None) -> ModelFolder:
    """Read a model folder of `format_`, a key of `FORMATS`; None: that of its files.

    `cased`: whether the vocabulary keeps case; None: the folder says it. InputError: as in `format_of` and in the
    format's reader.
    """
    format_ = format_ or format_of(directory)
    folder = FORMATS[format_].read(directory, cased)
    if format_ == "bert-tfx":
        return folder
    name = os.path.basename(os.path.abspath(directory))
    return dataclasses.replace(folder, origin={"format": format_, "name": name})


def from_checkpoint(directory: str, cased: bool | None = None) -> ModelFolder:
    """Read a folder of google-research/bert, Hugging Face, keras-hub or this project, with its weights.

    What of it is left out is told on standard error.

    Args:
        cased: whether the vocabulary keeps case; None: the folder says it.

    Raises:
        InputError: the folder has no model that can be read; names the file and the reason.
    """
    folder = read_folder(directory, cased)
    for remark in folder.remarks:
        notify(remark)
    _ = folder.tokenizer  # its errors come here
    return folder


def export(folder: ModelFolder, directory: str, to: str = "bert-tfx") -> Written:
    """Write a model and its tokenizer.

    Args:
        to: `bert-tfx`, a SavedModel that takes raw text, with the weights; `hf`; for a pre-trained model also `tf1` or
            `keras-hub`.

    Raises:
        InputError: the format cannot hold the model.
    """
    if to not in FORMATS:
        raise InputError(f"{to}: no such format; there are {', '.join(FORMATS)}")
    if folder.task is not None and to not in ("bert-tfx", "hf"):
        raise InputError(f"{to} has no place for a model of {folder.task.name}; write it as bert-tfx or hf")
    return FORMATS[to].write(folder, directory)
