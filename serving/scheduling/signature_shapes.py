"""What the shapes of a signature say: whether its rows are independent, and how wide a request's own rows are.

Computing rows together must not change the answer to a request:

- Rows are independent. `evaluate`, whose ELECTRA draws from one seed for a whole batch, is never shared or divided.
- Inputs and outputs have the rows as their first dimension, and inputs no other unknown one.
- Outputs as wide as the widest row of a call (`[B, T, H]` of encode, `[B, M, k]` of fill_mask) are cut to the request's
  own widest row, found by the padding of `tokens` or `words` (`_PADDED`); signatures without such an output are not
  shared.
"""

import numpy as np

from serving.protos import SignatureDef, TensorInfo, types_pb2

# Outputs that show where a row ends; beyond its end are "" or the vocabulary's padding token, which no text produces
# (bert_keras/saved_model/text_inputs.py, bert_keras/saved_model/).
_PADDED = ("tokens", "words")
_PADDING = (b"", b"[PAD]", b"<pad>")
_WHOLE = ("evaluate",)


def can_share(name: str, signature: SignatureDef) -> bool:
    """Whether the answer to rows of several requests can be split into the answers that each would get alone."""
    if name in _WHOLE or not signature.inputs or not signature.outputs:
        return False
    inputs, outputs = ([sizes(info) for info in infos.values()] for infos in (signature.inputs, signature.outputs))
    if not all(shape[:1] == [-1] for shape in inputs + outputs):
        return False
    if any(-1 in shape[1:] for shape in inputs) or any(-1 in shape[2:] for shape in outputs):
        return False
    return not any(map(is_varying, signature.outputs.values())) or bool(marker(signature))


def can_divide(name: str, signature: SignatureDef) -> bool:
    """Whether the rows of a request may be computed in several calls.

    For signatures that cannot share, rows are known to be independent if all inputs and outputs have rows, and if only
    inputs determine the width of outputs (multiple choice).
    """
    if can_share(name, signature):
        return True
    infos = [*signature.inputs.values(), *signature.outputs.values()]
    if not signature.inputs or not signature.outputs or not all(sizes(info)[:1] == [-1] for info in infos):
        return False
    return any(map(is_varying, signature.inputs.values()))


def marker(signature: SignatureDef) -> str:
    """The output that shows the width of a request's own rows; "" if there is none."""
    infos = signature.outputs
    strings = [key for key in _PADDED if key in infos and infos[key].dtype == types_pb2.DT_STRING]
    return next((key for key in strings if is_varying(infos[key])), "")


def sizes(info: TensorInfo) -> list[int]:
    """The shape, with -1 for unknown dimensions."""
    return [] if info.tensor_shape.unknown_rank else [dim.size for dim in info.tensor_shape.dim]


def is_varying(info: TensorInfo) -> bool:
    """Whether the size of a row differs between requests."""
    return -1 in sizes(info)[1:]


def row_widths(marker: np.ndarray) -> np.ndarray:
    """For each row of [B, width, ...] the number of columns up to its last that is not padding."""
    padding = np.zeros(marker.shape, bool)
    for token in _PADDING:
        padding |= marker == token
    used = ~padding.all(axis=tuple(range(2, marker.ndim)))
    columns = np.arange(1, marker.shape[1] + 1)
    return (used * columns).max(axis=1, initial=0)
