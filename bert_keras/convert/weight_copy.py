"""Copying of weights, for all formats: a model from tensors under a format's names, and back."""

import posixpath
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.convert.architecture import Architecture, architecture_of, backbone_of, new_model
from bert_keras.convert.families.weight import Format, StoredTensor, Weight
from bert_keras.convert.model_folder import Networks
from bert_keras.errors import InputError
from bert_keras.models.config import Part

if TYPE_CHECKING:
    from bert_keras.convert.architecture import Model

# All convert to float32 exactly.
_DTYPES = ("float32", "float16", "bfloat16")
# Attributes of heads; each model has some of them.
_HEADS = ("mlm_head", "lm_head", "nsp_head", "head_dense", "head_output", "classifier")


def float32(tensor: StoredTensor) -> np.ndarray:
    """Read a tensor; InputError if its type is no type of weights, or it has NaN or infinite numbers."""
    value = tensor.read()
    if value.dtype.name not in _DTYPES:
        raise InputError(
            f"{tensor.file}: the tensor {tensor} is {value.dtype.name}; it must be one of {', '.join(_DTYPES)}"
        )
    value = value.astype("float32")
    check_finite(value, f"{tensor.file}: the tensor {tensor}")
    return value


def check_finite(value: np.ndarray, name: str) -> None:
    """Raise InputError if a weight has NaN or infinite numbers."""
    if wrong := value.size - np.count_nonzero(np.isfinite(value)):
        raise InputError(
            f"{name} has {wrong:,} numbers that are NaN or infinite; the model is damaged, or its training diverged: "
            "take an earlier checkpoint"
        )


def check_tensors(
    architecture: Architecture, format_: Format, stored: Mapping[str, StoredTensor], file: str
) -> list[Weight]:
    """The weights of the stored parts.

    `stored`: tensors by their name in the format. `file`: the file to name in errors on missing tensors. InputError: a
    tensor is missing, mis-shaped, or unknown.
    """
    table = {known.name: weight for weight in architecture.weights() if (known := weight.stored(format_))}
    for name, tensor in stored.items():
        if name not in table:
            article = "an" if architecture.title.startswith("E") else "a"
            raise InputError(
                f"{tensor.file}: the tensor {tensor} is not part of {article} {architecture.title} with "
                f"{architecture.encoder.num_hidden_layers} layers and its heads; use the "
                "configuration that the model was trained with"
            )
        if tensor.shape != (expected := table[name].stored_shape(format_)):
            raise InputError(
                f"{tensor.file}: the tensor {tensor} must be {list(expected)} by the configuration beside it; "
                "use both files of one model"
            )
    parts = {table[name].part for name in stored} | {"encoder"}
    for name, weight in table.items():
        if weight.part in parts and name not in stored:
            raise InputError(
                f"{file}: the tensor {name} {list(weight.stored_shape(format_))} of the {weight.part} is missing, but "
                f"the {weight.part} must be complete; is the file complete, and the configuration beside it its own?"
            )
    if parts >= {"masked-LM head", "discriminator head"} and architecture.family == "electra":
        raise InputError(
            f"{file} has the heads of a generator and of a discriminator; these are two models: use one folder each"
        )
    return [weight for weight in table.values() if weight.part in parts]


def read_model(
    architecture: Architecture,
    format_: Format,
    stored: Mapping[str, StoredTensor],
    file: str,
    model: Any = None,
) -> Networks:
    """The model made from tensors, with a remark on each part that it has no place for.

    Arguments and errors as in `check_tensors`; `model` is a built one that takes them, None a new one. Segment
    embeddings are 0 if the format has none.
    """
    present = check_tensors(architecture, format_, stored, file)
    read = dict.fromkeys(weight.part for weight in present)
    model = model or new_model(architecture, read)
    variables = variables_by_path(model)
    for weight in present:
        known = weight.stored(format_)
        if known and weight.path in variables:
            variables[weight.path].assign(weight.from_file(format_, float32(stored[known.name])))
    parts: dict[Part, None] = {}
    for weight in architecture.weights():
        if weight.path in variables:
            parts[weight.part] = None
            if weight.part == "encoder" and not weight.stored(format_):
                variables[weight.path].assign(np.zeros(weight.shape, "float32"))
    unread = (f"the {part} of {file} is dropped: {type(model).__name__} has none" for part in read if part not in parts)
    return Networks(model, tuple(part for part in parts if part not in read), remarks=tuple(unread))


def tensors_of(model: "Model", format_: Format, family: str | None = None) -> dict[str, np.ndarray]:
    """The weights of a model that a format can store, float32, under its names and in its layout."""
    from keras import ops

    variables, tensors = variables_by_path(model), {}
    for weight in architecture_of(model, family).weights():
        known = weight.stored(format_)
        if known and weight.path in variables:
            value = np.asarray(ops.convert_to_numpy(variables[weight.path]), "float32")
            tensors[known.name] = weight.to_file(format_, value)
    return tensors


def parts_of(model: "Model", format_: Format, family: str | None = None, stored: bool = True) -> tuple[Part, ...]:
    """The parts of a model that a format stores, or with weights that it does not store."""
    paths, table = variables_by_path(model), architecture_of(model, family).weights()
    chosen = (w.part for w in table if w.path in paths and bool(w.stored(format_)) == stored)
    return tuple(dict.fromkeys(chosen))


def left_out(model: "Model", format_: Format, family: str | None = None) -> tuple[Part, ...]:
    """The parts of a model, besides the encoder, that a format cannot store."""
    return tuple(part for part in parts_of(model, format_, family, stored=False) if part != "encoder")


def head_left_out(head: Collection[str], file: str, why: str = "") -> str:
    """The remark on the tensors of a fine-tuned model's head, which are not read; "" without such tensors."""
    return f"{file} is a fine-tuned model: its head is left out ({named(head)}){why}" if head else ""


def named(names: Collection[str], most: int = 5) -> str:
    return ", ".join(sorted(names)[:most]) + (", ..." if len(names) > most else "")


def copy_weights(source: "Model", target: "Model") -> tuple[Part, ...]:
    """Assign the weights that two models of one encoder both have; return the parts of `target` that keep theirs."""
    ours, theirs = variables_by_path(target), variables_by_path(source)
    untrained: dict[Part, None] = {}
    for weight in architecture_of(target).weights():
        if weight.path in ours and weight.path in theirs:
            ours[weight.path].assign(theirs[weight.path])
        elif weight.path in ours:
            untrained[weight.part] = None
    return tuple(untrained)


def variables_by_path(model: "Model") -> dict[str, Any]:
    """The variables of a model by their path in the table, independent of the model's name and parents."""
    backbone = backbone_of(model)
    inner = [backbone.embeddings, backbone.embeddings_project, *backbone.encoder_layers, backbone.final_layer_norm]
    inner += [backbone.pooler, backbone.relative_positions]
    layers = {f"bert/{layer.name}": layer for layer in inner if layer is not None}
    layers |= {getattr(model, name).name: getattr(model, name) for name in _HEADS if hasattr(model, name)}
    return {
        posixpath.join(path, posixpath.relpath(variable.path, layer.path)): variable
        for path, layer in layers.items()
        for variable in layer.weights
    }
