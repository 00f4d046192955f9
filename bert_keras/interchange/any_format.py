"""A model's folder, whichever program wrote it."""

from __future__ import annotations

import os
from collections.abc import Callable

from bert_keras.byte_bpe import ByteBpeTokenizer
from bert_keras.errors import InputError
from bert_keras.interchange import huggingface, presets, pushed, tf1
from bert_keras.interchange.transfer import ReadModel
from bert_keras.interchange.vocabularies import Tokenizer
from bert_keras.tokenizer import BertTokenizer

# By format, as the command line calls it.
READERS: dict[str, Callable[[str], ReadModel]] = {
    "tf1": tf1.read_tf1,
    "hf": huggingface.read_huggingface,
    "keras-hub": presets.read_keras_hub,
    "bert-tfx": pushed.read_pushed,
}
# Files that a folder of a format has, and no other before it in the table.
_SIGNS = {
    "bert-tfx": ("bert_config.json", "model.weights.h5"),
    "tf1": ("bert_config.json", f"{tf1.CHECKPOINT}.index"),
    "keras-hub": (presets.CONFIG_FILE, presets.WEIGHTS_FILE),
    "hf": (huggingface.CONFIG_FILE,),
}


def format_of(directory: str) -> str:
    """Whose files a folder has: a key of `READERS`.

    Raises:
        InputError: there is no such folder, or it has the files of none.
    """
    if not os.path.isdir(directory):
        raise InputError(f"{directory}: no such folder; give the folder of a model")
    for format_, files in _SIGNS.items():
        if all(os.path.exists(os.path.join(directory, file)) for file in files):
            return format_
    known = "; ".join(f"{format_}: {' and '.join(files)}" for format_, files in _SIGNS.items())
    raise InputError(f"{directory}: has the files of no model that can be read ({known})")


def read_any(directory: str) -> ReadModel:
    """Reads a folder of google-research/bert's, Hugging Face's, keras-hub's or of this project.

    Raises:
        InputError: as `format_of`, and as the format's reader.
    """
    return READERS[format_of(directory)](directory)


def tokenizer_of(found: ReadModel, directory: str, cased: bool | None) -> Tokenizer | None:
    """The tokenizer of what was read; None without a vocabulary.

    Args:
        found: what was read of `directory`.
        cased: whether the vocabulary keeps case; None: as the folder says.

    Raises:
        InputError: the vocabulary is no tokenizer's, or neither says whether it is lower-cased.
    """
    if found.vocabulary is None:
        return None
    lower_case = found.lower_case if cased is None else not cased
    try:
        if found.merges is not None:
            return ByteBpeTokenizer(found.vocabulary, found.merges)
        if lower_case is not None:
            return BertTokenizer(found.vocabulary, lower_case)
    except ValueError as error:
        raise InputError(f"{directory}: {error}") from error
    raise InputError(f"{directory}: does not say whether its vocabulary is lower-cased: give --cased or --uncased")
