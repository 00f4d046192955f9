"""Detection of the format of a model's folder."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.convert import bert_tfx, huggingface, keras_hub, tf1
from bert_keras.convert.weight_copy import Outline, ReadModel, Written
from bert_keras.convert.weight_map import Family
from bert_keras.errors import InputError
from bert_keras.models.config import Part
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer
from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer
from bert_keras.tokenizers.vocabulary_files import Tokenizer, wordpiece_tokenizer

if TYPE_CHECKING:
    from bert_keras.convert.architecture import Model
    from bert_keras.models.electra import ElectraGenerator

# By the format's name on the command line.
READERS: dict[str, Callable[[str], ReadModel]] = {
    "tf1": tf1.read_tf1,
    "hf": huggingface.read_huggingface,
    "keras-hub": keras_hub.read_keras_hub,
    "bert-tfx": bert_tfx.read_pushed,
}
_OUTLINES: dict[str, Callable[[str], Outline]] = {
    "tf1": tf1.outline_tf1,
    "hf": huggingface.outline_huggingface,
    "keras-hub": keras_hub.outline_keras_hub,
    "bert-tfx": bert_tfx.outline_pushed,
}
WRITERS: dict[str, Callable[..., Written]] = {
    "tf1": tf1.write_tf1,
    "hf": huggingface.write_huggingface,
    "keras-hub": keras_hub.write_keras_hub,
    "bert-tfx": bert_tfx.write_pushed,
}
# Files that identify a format, checked in this order.
_SIGNS = (
    ("bert-tfx", ("bert_config.json", "model.weights.h5")),
    ("tf1", ("bert_config.json", f"{tf1.CHECKPOINT}.index")),
    ("keras-hub", (keras_hub.CONFIG_FILE, keras_hub.WEIGHTS_FILE)),
    ("hf", (huggingface.CONFIG_FILE,)),
    ("tf1", ("*.index",)),  # an ELECTRA's
)


def format_of(directory: str) -> str:
    """The format of a folder: a key of `READERS`.

    Raises:
        InputError: there is no such folder, or its format is unknown.
    """
    if tf1.is_checkpoint(directory):
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


def read_any(directory: str) -> ReadModel:
    """Read a model folder of google-research/bert or electra, Hugging Face, keras-hub or this project.

    Raises:
        InputError: as in `format_of` and in the format's reader.
    """
    return READERS[format_of(directory)](directory)


def outline_any(directory: str) -> Outline:
    """Read a model folder without its weights; only their sizes are checked; errors as in `read_any`."""
    return _OUTLINES[format_of(directory)](directory)


def tokenizer_of(model: ReadModel, directory: str, cased: bool | None) -> Tokenizer | None:
    """The tokenizer of a model; None without a vocabulary.

    Args:
        model: the model read from `directory`.
        cased: whether the vocabulary keeps case; None: as in the folder.

    Raises:
        InputError: an invalid vocabulary, or lower-casing is unknown.
    """
    if model.vocabulary is None:
        return None
    try:
        if model.sentencepiece is not None:
            return SentencePieceTokenizer(model.sentencepiece)
        if model.merges is not None:
            return ByteBpeTokenizer(model.vocabulary, model.merges)
    except ValueError as error:
        raise InputError(f"{directory}: {error}") from error
    return wordpiece_tokenizer(model.vocabulary, model.normalization, directory, cased)


def write_any(
    format_: str,
    model: Model,
    tokenizer: Tokenizer | None,
    directory: str,
    family: Family,
    untrained: Sequence[Part],
    generator: ElectraGenerator | None = None,
    embedding: EmbeddingSettings | None = None,
    max_seq_length: int | None = None,
) -> Written:
    """Write a folder of a format, a key of `WRITERS`, of an ELECTRA with its generator but for keras-hub.

    `embedding` and `max_seq_length` (`ReadModel`) are written as bert-tfx and hf.

    Raises:
        InputError: the format cannot hold the model, or its vocabulary is another model's.
    """
    further: dict[str, Any] = {} if format_ == "keras-hub" else {"generator": generator}
    # A SavedModel has signatures, which must not answer from what was drawn.
    further |= {"untrained": untrained} if format_ == "bert-tfx" else {}
    if format_ in ("bert-tfx", "hf"):
        further |= {"embedding": embedding, "max_seq_length": max_seq_length}
    return WRITERS[format_](model, tokenizer, directory, family, **further)
