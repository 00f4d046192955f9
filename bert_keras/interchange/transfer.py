"""What both formats share: a model from tensors under a format's names and back, the vocabulary, whole files only."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import posixpath
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.config import BertConfig
from bert_keras.errors import InputError
from bert_keras.features import VOCABULARY_FILE
from bert_keras.interchange.names import PARTS, Format, Part, Weight, weights
from bert_keras.tokenizer import BertTokenizer, load_vocabulary

if TYPE_CHECKING:
    from bert_keras.backbone import BertBackbone
    from bert_keras.heads import BertForPreTraining

# Each of them fits float32, bit for bit.
_DTYPES = ("float32", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class ReadBert:
    """What a directory of another program holds.

    Attributes:
        model: float32; a `BertForPreTraining` if one of its heads is there, else a `BertBackbone`.
        vocabulary: a token for each id; None if the directory has none.
        lower_case: whether text is lower-cased (and stripped of accents); None where the directory does not say.
        initialised: the parts of `model` that the directory does not hold. They are drawn like a new model's, and
            mean nothing before they are trained.
    """

    model: BertForPreTraining | BertBackbone
    vocabulary: list[str] | None
    lower_case: bool | None
    initialised: tuple[Part, ...]


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file that is not read yet: its name there, the file, its shape, and how to read it."""

    name: str
    file: str
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def __str__(self) -> str:
        return f"{self.name} {list(self.shape)}"

    def float32(self) -> np.ndarray:
        value = self.read()
        if value.dtype.name not in _DTYPES:
            raise InputError(
                f"{self.file}: the tensor {self} is {value.dtype.name}; it must be one of {', '.join(_DTYPES)}"
            )
        return value.astype("float32")


def read_text(path: str) -> str:
    """A text file; InputError if it is not there, or no text."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError as error:
        raise InputError(f"{path} is not there; the folder of a BERT has it") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); bring it again") from error


def read_vocabulary(directory: str, config: BertConfig, config_file: str) -> list[str] | None:
    """The tokens of `vocab.txt`, None if there is none; InputError if they are not one a row of the embedding."""
    path = os.path.join(directory, VOCABULARY_FILE)
    if not os.path.exists(path):
        return None
    try:
        vocabulary = load_vocabulary(path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); bring it again") from error
    return check_vocabulary_size(vocabulary, path, config, config_file)


def check_vocabulary_size(vocabulary: list[str], path: str, config: BertConfig, config_file: str) -> list[str]:
    """The vocabulary of a file; InputError if it has not a token for each row of the word embeddings."""
    if len(vocabulary) != config.vocab_size:
        raise InputError(
            f"{path} has {len(vocabulary)} tokens, but the word embeddings have {config.vocab_size} rows "
            f"(vocab_size of {config_file}); bring the file that the model was trained with"
        )
    return vocabulary


def check_tokenizer(tokenizer: BertTokenizer | None, config: BertConfig) -> None:
    """InputError if the vocabulary to be written is not the model's."""
    if tokenizer and len(tokenizer.vocabulary) != config.vocab_size:
        raise InputError(
            f"the vocabulary has {len(tokenizer.vocabulary)} tokens, but the word embeddings of the model have "
            f"{config.vocab_size} rows; give the vocabulary that it was trained with"
        )


def check_bidirectional(config: BertConfig) -> None:
    """InputError if whoever reads the files would compute another function of the same tensors."""
    if config.causal:
        raise InputError("model.causal is True; these files are of models whose tokens see both sides")


def check_tensors(config: BertConfig, format_: Format, stored: Mapping[str, StoredTensor], file: str) -> list[Weight]:
    """The weights of the parts that are there.

    Args:
        stored: by the name of the format.
        file: what to name if something is not in it.

    Raises:
        InputError: a tensor is missing, mis-shaped, or one too many.
    """
    table = {weight.stored(format_).name: weight for weight in weights(config)}
    for name, tensor in stored.items():
        if name not in table:
            raise InputError(
                f"{tensor.file}: the tensor {tensor} is none of a BERT of {config.num_hidden_layers} layers with "
                "masked-LM and next-sentence heads; write the file again without it"
            )
        if tensor.shape != (expected := table[name].stored_shape(format_)):
            raise InputError(
                f"{tensor.file}: the tensor {tensor} must be {list(expected)} by the configuration beside it; "
                "bring the two files of one model"
            )
    there = {table[name].part for name in stored} | {"encoder"}
    for name, weight in table.items():
        if weight.part in there and name not in stored:
            raise InputError(
                f"{file}: the tensor {name} {list(weight.stored_shape(format_))} of the {weight.part} is not there, "
                f"but the {weight.part} must be whole; is the file complete, and the configuration beside it its own?"
            )
    return [weight for weight in table.values() if weight.part in there]


def read_model(
    config: BertConfig, format_: Format, stored: Mapping[str, StoredTensor], file: str
) -> tuple[BertForPreTraining | BertBackbone, tuple[Part, ...]]:
    """The model of the tensors, and its parts that are not among them; arguments and errors as `check_tensors`."""
    found = check_tensors(config, format_, stored, file)

    from bert_keras.backbone import BertBackbone
    from bert_keras.heads import BertForPreTraining

    parts = {weight.part for weight in found}
    has_head = parts & {"masked-LM head", "next-sentence head"}
    model = BertForPreTraining(config) if has_head else BertBackbone(config)
    model.build()
    variables = variables_by_path(model)
    for weight in found:
        name, transposed = weight.stored(format_)
        value = stored[name].float32()
        variables[weight.path].assign(value.T if transposed else value)
    model_parts = PARTS if has_head else ("encoder", "pooler")
    initialised = tuple(part for part in model_parts if part not in parts)
    if initialised:
        logging.getLogger(__name__).warning(
            "%s has no %s: initialised, not read; train before use", file, " and no ".join(initialised)
        )
    return model, initialised


def tensors_of(model: BertForPreTraining | BertBackbone, format_: Format) -> dict[str, np.ndarray]:
    """The weights of a model, float32, under the names and in the layout of a format."""
    from keras import ops

    variables, tensors = variables_by_path(model), {}
    for weight in weights(model.config):
        if weight.path in variables:
            name, transposed = weight.stored(format_)
            value = np.asarray(ops.convert_to_numpy(variables[weight.path]), "float32")
            tensors[name] = np.ascontiguousarray(value.T if transposed else value)
    return tensors


def variables_by_path(model: BertForPreTraining | BertBackbone) -> dict[str, Any]:
    """The variables of a model by their path in the table of names, whatever the model is called or is within."""
    from bert_keras.backbone import BertBackbone

    root = posixpath.commonpath([variable.path for variable in model.weights])
    within = "bert" if isinstance(model, BertBackbone) else ""
    return {posixpath.join(within, posixpath.relpath(v.path, root)): v for v in model.weights}


@contextlib.contextmanager
def staged(directory: str) -> Iterator[str]:
    """A temporary folder whose files are moved into `directory` when all are written, and dropped at an error."""
    os.makedirs(directory, exist_ok=True)
    # Inside it, so that a rename stays on one file system.
    with tempfile.TemporaryDirectory(prefix=".part-", dir=directory) as temporary:
        yield temporary
        for name in sorted(os.listdir(temporary)):
            os.replace(os.path.join(temporary, name), os.path.join(directory, name))


def write_text(directory: str, name: str, text: str) -> None:
    with open(os.path.join(directory, name), "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def write_vocabulary(directory: str, tokenizer: BertTokenizer) -> None:
    """`vocab.txt`."""
    write_text(directory, VOCABULARY_FILE, "".join(token + "\n" for token in tokenizer.vocabulary))
