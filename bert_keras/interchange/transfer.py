"""What all formats share: a model from tensors under a format's names, and back."""

from __future__ import annotations

import dataclasses
import logging
import posixpath
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.config import BertConfig
from bert_keras.errors import InputError
from bert_keras.interchange.architecture import Architecture, architecture_of, backbone_of, new_model
from bert_keras.interchange.names import Family, Format, Part, Weight

if TYPE_CHECKING:
    from bert_keras.interchange.architecture import Model

# Each of them fits float32, bit for bit.
_DTYPES = ("float32", "float16", "bfloat16")
# Heads by the attribute that holds them; a model has some.
_HEADS = ("mlm_head", "nsp_head", "head_dense", "head_output")


@dataclasses.dataclass(frozen=True)
class ReadModel:
    """What a directory of another program holds.

    Attributes:
        model: float32; a `BertBackbone` if there is no head, else a `BertForPreTraining`, `RobertaForMaskedLM`,
            `ElectraDiscriminator` or `ElectraGenerator`.
        vocabulary: a token for each id; None if the directory has none.
        lower_case: whether text is lower-cased (and stripped of accents); None where the directory does not say.
        initialised: the parts of `model` that the directory does not hold. They are drawn like a new model's, and
            mean nothing before they are trained.
        merges: of a byte-level BPE; None if the vocabulary is WordPiece's.
        family: what the model is; of a `BertBackbone` nothing else says it.
        remarks: what of the directory is not in the model, or is computed otherwise; a sentence each.
    """

    model: Model
    vocabulary: list[str] | None
    lower_case: bool | None
    initialised: tuple[Part, ...]
    merges: list[tuple[str, str]] | None = None
    family: Family = "bert"
    remarks: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Written:
    """What whoever reads the written directory should know.

    Attributes:
        drawn: parts of the directory that the model does not have; they are drawn like a new model's.
        remarks: what of the model is not in the directory, or is computed otherwise there; a sentence each.
    """

    drawn: tuple[Part, ...] = ()
    remarks: tuple[str, ...] = ()


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


def only_bert(model: Model, family: Family | None, whose: str) -> BertConfig:
    """The configuration of a BERT; InputError if it is none, or `whose` would compute another function."""
    architecture = architecture_of(model, family)
    if architecture.family != "bert":
        raise InputError(
            f"{whose} cannot hold a model of {architecture.title}; write it with --to hf or --to keras-hub"
        )
    return architecture.encoder


def check_tensors(
    architecture: Architecture, format_: Format, stored: Mapping[str, StoredTensor], file: str
) -> list[Weight]:
    """The weights of the parts that are there.

    Args:
        stored: by the name of the format.
        file: what to name if something is not in it.

    Raises:
        InputError: a tensor is missing, mis-shaped, or one too many.
    """
    table = {known.name: weight for weight in architecture.weights() if (known := weight.stored(format_))}
    for name, tensor in stored.items():
        if name not in table:
            raise InputError(
                f"{tensor.file}: the tensor {tensor} is none of a {architecture.title} of "
                f"{architecture.encoder.num_hidden_layers} layers with its pre-training heads; write the file again "
                "without it"
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
    if there >= {"masked-LM head", "discriminator head"} and architecture.family == "electra":
        raise InputError(
            f"{file} has the heads of a generator and of a discriminator; these are two models: give a folder of one"
        )
    return [weight for weight in table.values() if weight.part in there]


def read_model(
    architecture: Architecture, format_: Format, stored: Mapping[str, StoredTensor], file: str
) -> tuple[Model, tuple[Part, ...], tuple[str, ...]]:
    """The model of the tensors, its parts that are not among them, and remarks on those that it has no place for.

    Arguments and errors as `check_tensors`. Segments of which a format knows nothing are 0.
    """
    found = check_tensors(architecture, format_, stored, file)
    read = dict.fromkeys(weight.part for weight in found)
    model = new_model(architecture, read)
    variables = variables_by_path(model)
    for weight in found:
        known = weight.stored(format_)
        if known and weight.path in variables:
            variables[weight.path].assign(weight.from_file(format_, stored[known.name].float32()))
    parts: dict[Part, None] = {}
    for weight in architecture.weights():
        if weight.path in variables:
            parts[weight.part] = None
            if weight.part == "encoder" and not weight.stored(format_):
                variables[weight.path].assign(np.zeros(weight.shape, "float32"))
    initialised = tuple(part for part in parts if part not in read)
    if initialised:
        logging.getLogger(__name__).warning(
            "%s has no %s: initialised, not read; train before use", file, " and no ".join(initialised)
        )
    unread = tuple(
        f"the {part} of {file} is dropped: {type(model).__name__} has none" for part in read if part not in parts
    )
    return model, initialised, unread


def tensors_of(model: Model, format_: Format, family: Family | None = None) -> dict[str, np.ndarray]:
    """The weights of a model, float32, under the names and in the layout of a format that has a place for them."""
    from keras import ops

    variables, tensors = variables_by_path(model), {}
    for weight in architecture_of(model, family).weights():
        known = weight.stored(format_)
        if known and weight.path in variables:
            value = np.asarray(ops.convert_to_numpy(variables[weight.path]), "float32")
            tensors[known.name] = weight.to_file(format_, value)
    return tensors


def left_out(model: Model, format_: Format, family: Family | None = None) -> tuple[Part, ...]:
    """The parts of a model, but for the encoder, that a format has no place for."""
    paths = variables_by_path(model)
    table = architecture_of(model, family).weights()
    unknown = [weight.part for weight in table if weight.path in paths and not weight.stored(format_)]
    return tuple(part for part in dict.fromkeys(unknown) if part != "encoder")


def variables_by_path(model: Model) -> dict[str, Any]:
    """The variables of a model by their path in the table of names, whatever the model is called or is within."""
    backbone = backbone_of(model)
    inner = [backbone.embeddings, backbone.embeddings_project, *backbone.encoder_layers, backbone.pooler]
    layers = {f"bert/{layer.name}": layer for layer in inner if layer is not None}
    layers |= {getattr(model, name).name: getattr(model, name) for name in _HEADS if hasattr(model, name)}
    return {
        posixpath.join(path, posixpath.relpath(variable.path, layer.path)): variable
        for path, layer in layers.items()
        for variable in layer.weights
    }
