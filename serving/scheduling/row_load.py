"""Cost of a request's rows, estimated before computation; the limits of a call; which rows may share one.

The server has no tokenizer, and a text has at most as many word pieces as bytes. Legend: B rows, S texts of a row (the
number of choices in multiple choice, else 1).

Computing rows together must not change the answer to a request:

- Rows are independent. `evaluate`, whose ELECTRA draws from one seed for a whole batch, is never shared or divided.
- Inputs and outputs have the rows as their first dimension, and inputs no other unknown one.
- Outputs as wide as the widest row of a call (`[B, T, H]` of encode, `[B, M, k]` of fill_mask) are cut to the request's
  own widest row, found by the padding of `tokens` or `words` (`_PADDING`); signatures without such an output are not
  shared.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from serving import errors, tensors
from serving.protos import Example, SignatureDef, TensorInfo, types_pb2

# A call takes at least this many rows of the following word pieces, masks and bytes: models truncate texts to 512 word
# pieces or fewer; every mask becomes scores for the whole vocabulary; tokenizing takes memory by the byte.
_LEAST_ROWS = 32
_TOKENS, _MASKS, _BYTES = 512, 16, 16 * 1024
# [CLS], [SEP] and the like in a pair.
_SPECIAL_TOKENS = 4
# Limit for one row; a text counts once for every choice that it is paired with.
_MOST_ROW_BYTES = 8 * 1024 * 1024
_STRING_BYTES = 64
# WordPiece's, byte-level BPE's.
_MASKS_OF_TEXTS = b"[MASK]", b"<mask>"
# The input with serialized tf.Examples of the pipeline (bert_keras/saved_model/).
_EXAMPLES = "examples"
# Outputs that show where a row ends, and what is beyond it: "" or, of tokens, the vocabulary's padding, which no text
# produces (bert_keras/saved_model/text_inputs.py). Words are the text's own, "[PAD]" too.
_PADDING = {"tokens": (b"", b"[PAD]", b"<pad>"), "words": (b"",)}
_WHOLE = ("evaluate",)


class Load(NamedTuple):
    """Estimated cost of a row, or of rows computed together: that of the largest, and the bytes of all."""

    tokens: int  # upper bound for all texts of the row
    masks: int  # to fill
    bytes: int  # size of all texts
    longest: int  # size of the longest text, with its pair, in bytes
    texts: int  # number of texts, S


class Budget(NamedTuple):
    """Limits of one call; tokens and masks count every row as the largest, which the others are padded to."""

    rows: int
    tokens: int
    masks: int
    bytes: int

    def holds(self, rows: int, largest: Load) -> bool:
        """Return whether so many rows fit, computed together."""
        _, tokens, masks, size = self
        padded = rows * largest.tokens <= tokens and rows * largest.masks <= masks
        return rows <= self.rows and padded and largest.bytes <= size


def budget_of(rows: int) -> Budget:
    """The limits of a call of at most `rows` rows."""
    full = max(rows, _LEAST_ROWS)
    return Budget(rows, full * _TOKENS, full * _MASKS, full * _BYTES)


def load_of(inputs: Mapping[str, np.ndarray]) -> list[Load]:
    """Load of each row of a request; INVALID_ARGUMENT if an input is not a serialized tf.Example."""
    count = max((array.shape[0] for array in inputs.values() if array.ndim), default=1)
    rows = [(0, 0, 1)] * count  # longest, masks, texts
    special = 0
    for name, array in inputs.items():
        if array.dtype != object:
            continue
        special = _SPECIAL_TOKENS
        if not array.size:
            continue
        texts_of = array.reshape(array.shape[0] if array.ndim else 1, -1).tolist()
        if name == _EXAMPLES:
            added = [(max(map(len, texts)), *_of_example(row, texts[0])) for row, texts in enumerate(texts_of)]
        else:
            added = [(max(map(len, texts)), _count_masks(texts), len(texts)) for texts in texts_of]
        if len(added) != count:  # of another input: assume its largest for every row
            added = [tuple(map(max, *added, (0, 0, 0)))] * count  # type: ignore[list-item]
        rows = [(r[0] + a[0], r[1] + a[1], max(r[2], a[2])) for r, a in zip(rows, added, strict=True)]
    return [
        Load((min(longest, _TOKENS - special) + special) * texts, masks, longest * texts, longest, texts)
        for longest, masks, texts in rows
    ]


def together(loads: Sequence[Load]) -> Load:
    """The load of rows that are computed together."""
    if len(loads) == 1:
        return loads[0]
    tokens, masks, size, longest, texts = zip(*loads, strict=True) if loads else [(0,)] * 5
    return Load(max(tokens), max(masks), sum(size), max(longest), max(texts))


def check_load(loads: Sequence[Load], budget: Budget, divisible: bool) -> None:
    """Refuse a row, or a request that cannot be divided, that is too large to compute: INVALID_ARGUMENT."""
    for row, load in enumerate(loads):
        if load.tokens > budget.tokens or (load.texts > 1 and load.bytes > _MOST_ROW_BYTES):
            raise errors.invalid(
                f"row {row}: {load.texts} texts of up to {load.longest} bytes; a row may have at most"
                f" {budget.tokens} word pieces of at most {_TOKENS} a text: send fewer or shorter ones"
            )
    count, largest = len(loads), together(loads)
    # Rows without texts cost nothing; a single one may have any number of bytes.
    measured = largest._replace(bytes=largest.bytes if count > 1 else 0)
    if not divisible and not budget._replace(rows=count).holds(count, measured):
        raise errors.invalid(
            f"{count} rows of up to {largest.tokens} word pieces and {largest.masks} masks, computed whole: at most"
            f" {budget.tokens} word pieces, {budget.masks} masks and {budget.bytes} bytes are; send fewer or shorter"
            " rows"
        )


def answer_bytes(signature: SignatureDef, wanted: Sequence[str], loads: Sequence[Load]) -> int:
    """Upper bound of the memory for the outputs `wanted` of all rows, computed from their shapes before execution.

    Unknown dimensions are those of the widest row, in choices, words, masks or word pieces.
    """
    marked, largest = marker(signature), together(loads)
    width = largest.tokens
    if largest.texts > 1:
        width = largest.texts
    elif marked == "words":
        width = largest.longest // 2 + 1
    elif marked and len(sizes(signature.outputs[marked])) > 2:
        width = largest.masks
    total = 0
    for name in wanted:
        info = signature.outputs[name]
        each = _STRING_BYTES if info.dtype == types_pb2.DT_STRING else tensors.numpy_dtype(info.dtype).itemsize
        for number, size in enumerate(sizes(info)):
            each *= size if size >= 0 else len(loads) if number == 0 else width
        total += each
    return total


def _count_masks(texts: Sequence[bytes]) -> int:
    return sum(text.count(mask) for text in texts for mask in _MASKS_OF_TEXTS)


def _of_example(row: int, serialized: bytes) -> tuple[int, int]:
    """Masks and texts of a serialized tf.Example; without a mask feature, unless it is a task row, all positions."""
    features = example_features(_EXAMPLES, row, serialized)
    ids = "masked_lm_positions" if "masked_lm_positions" in features else "input_ids"
    masks = len(features[ids].int64_list.value) if ids in features else 0
    return masks, max((len(feature.bytes_list.value) for feature in features.values()), default=1) or 1


def example_features(name: str, row: int, serialized: bytes) -> Mapping[str, Any]:
    """The features of a serialized tf.Example; INVALID_ARGUMENT names the input and the row of another text."""
    try:
        return Example.FromString(serialized).features.feature
    except DecodeError:
        raise errors.invalid(f'input "{name}", row {row}: not a serialized tf.Example') from None


def can_share(name: str, signature: SignatureDef) -> bool:
    """Return whether the answer to rows of several requests can be split into the answers that each would get alone."""
    if name in _WHOLE or not signature.inputs or not signature.outputs:
        return False
    inputs, outputs = ([sizes(info) for info in infos.values()] for infos in (signature.inputs, signature.outputs))
    if not all(shape[:1] == [-1] for shape in inputs + outputs):
        return False
    if any(-1 in shape[1:] for shape in inputs) or any(-1 in shape[2:] for shape in outputs):
        return False
    return not any(map(is_varying, signature.outputs.values())) or bool(marker(signature))


def can_divide(name: str, signature: SignatureDef) -> bool:
    """Return whether the rows of a request may be computed in several calls.

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
    strings = [key for key in _PADDING if key in infos and infos[key].dtype == types_pb2.DT_STRING]
    return next((key for key in strings if is_varying(infos[key])), "")


def sizes(info: TensorInfo) -> list[int]:
    """The shape, with -1 for unknown dimensions."""
    return [] if info.tensor_shape.unknown_rank else [dim.size for dim in info.tensor_shape.dim]


def is_varying(info: TensorInfo) -> bool:
    """Return whether the size of a row differs between requests."""
    return -1 in sizes(info)[1:]


def row_widths(name: str, output: np.ndarray) -> np.ndarray:
    """For each row of a marker [B, width, ...] the number of columns up to its last that is not padding."""
    padding = np.zeros(output.shape, bool)
    for token in _PADDING[name]:
        padding |= output == token
    used = ~padding.all(axis=tuple(range(2, output.ndim)))
    columns = np.arange(1, output.shape[1] + 1)
    return (used * columns).max(axis=1, initial=0)
