"""Splits a request into parts for computation, and joins their answers.

A request larger than a batch is computed in parts with rows of similar length. So its memory is bounded, its short
texts are not padded to its longest one, and it can be cancelled between two parts.

All sizes are estimated from the texts before computation: the server has no tokenizer, and a text has at most as many
word pieces as bytes. Legend: B rows, S texts of a row (the number of choices in multiple choice, else 1).
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from serving import errors, tensors
from serving.protos import Example, SignatureDef, types_pb2
from serving.scheduling.batching import is_varying, marker, sizes

# Limits for a row that may share a full batch with rows of other requests. Models truncate texts to 512 word pieces or
# fewer; every mask becomes scores for the whole vocabulary; tokenizing takes memory in proportion to the bytes.
_TOKENS, _MASKS, _BYTES = 512, 16, 16 * 1024
# [CLS], [SEP] and the like in a pair.
_SPECIAL_TOKENS = 4
# A full batch has at least this many such rows, however small batches were configured.
_LEAST_ROWS = 32
# Limit for one row; a text counts once for every choice that it is paired with.
_MOST_ROW_BYTES = 8 * 1024 * 1024
_STRING_BYTES = 64
# WordPiece's, byte-level BPE's.
_MASKS_OF_TEXTS = b"[MASK]", b"<mask>"
# The input with serialized tf.Examples of the pipeline (bert_keras/saved_model/).
_EXAMPLES = "examples"
# Errors of graphs refer to rows like this: "text 3 has no [MASK]", "Key: text, Index: 3".
_ROW_NAMED = re.compile(r"\b(text|row|Index:) (\d+)\b")


class Load(NamedTuple):
    """Estimated cost of each row, int64 [B].

    Attributes:
        tokens: upper bound for all texts of the row.
        masks: masks to fill.
        bytes: size of all texts.
        longest: size of the longest text, with its pair, in bytes.
        texts: number of texts, S.
    """

    tokens: np.ndarray
    masks: np.ndarray
    bytes: np.ndarray
    longest: np.ndarray
    texts: np.ndarray

    @classmethod
    def of(cls, inputs: Mapping[str, np.ndarray]) -> "Load":
        """Load of a request's inputs; INVALID_ARGUMENT if an input is not a serialized tf.Example."""
        rows = max((array.shape[0] for array in inputs.values() if array.ndim), default=1)
        longest, masks = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        texts = np.ones(rows, np.int64)
        for name, array in inputs.items():
            if array.dtype != object or not array.size:
                continue
            by_row = array.reshape(array.shape[0] if array.ndim else 1, -1)
            lengths = np.reshape([len(text) for text in by_row.flat], by_row.shape).max(axis=1)
            if name == _EXAMPLES:
                own = np.array([_of_example(row, serialized) for row, serialized in enumerate(by_row[:, 0])])
            else:
                own = np.array(
                    [
                        (sum(text.count(mask) for text in row for mask in _MASKS_OF_TEXTS), by_row.shape[1])
                        for row in by_row
                    ]
                )
            own = np.column_stack([lengths, own])
            if len(by_row) != rows:  # of another input: assume its largest for every row
                own = own.max(axis=0, keepdims=True)
            longest += own[:, 0]
            masks += own[:, 1]
            texts = np.maximum(texts, own[:, 2])
        special = _SPECIAL_TOKENS if any(array.dtype == object for array in inputs.values()) else 0
        tokens = (np.minimum(longest, _TOKENS - special) + special) * texts
        return cls(tokens, masks, longest * texts, longest, texts)

    def of_rows(self, rows: np.ndarray) -> "Load":
        """Load of some rows."""
        return Load(*(values[rows] for values in self))

    @property
    def is_small(self) -> bool:
        """Whether a full batch of rows like these may be computed together."""
        return not ((self.masks > _MASKS) | (self.bytes > _BYTES)).any()


class Part(NamedTuple):
    """Rows computed together.

    Attributes:
        rows: their indices in the request; None for all rows in order.
        shared: whether rows of other requests may join the batch.
    """

    inputs: Mapping[str, np.ndarray]
    rows: np.ndarray | None
    shared: bool

    def located(self, error: errors.ServingError) -> errors.ServingError:
        """`error`, with row numbers of this part replaced by those of the request."""
        if self.rows is None:
            return error
        rows = self.rows

        def named(found: re.Match[str]) -> str:
            return f"{found[1]} {rows[int(found[2])] if int(found[2]) < len(rows) else found[2]}"

        return errors.ServingError(error.code, _ROW_NAMED.sub(named, str(error), count=1))


def parts_of(inputs: Mapping[str, np.ndarray], load: Load, most_rows: int, divisible: bool) -> list[Part]:
    """Split a request into parts, short rows first; a single part if it fits.

    Args:
        divisible: whether rows are independent.

    Raises:
        ServingError: INVALID_ARGUMENT: a row, or a request that cannot be divided, is too large to compute.
    """
    full = max(most_rows, _LEAST_ROWS)
    tokens, masks, size = full * _TOKENS, full * _MASKS, full * _BYTES
    too_long = (load.tokens > tokens) | ((load.texts > 1) & (load.bytes > _MOST_ROW_BYTES))
    if too_long.any():
        row = int(too_long.argmax())
        raise errors.invalid(
            f"row {row}: {load.texts[row]} texts of up to {load.longest[row]} bytes;"
            f" a row may have at most {tokens} word pieces of at most {_TOKENS} a text: send fewer or shorter ones"
        )
    count = len(load.tokens)
    fits = (
        count * load.tokens.max(initial=0) <= tokens
        and count * load.masks.max(initial=0) <= masks
        and (load.bytes.sum() <= size or count == 1)
    )
    divisible = divisible and len({array.shape[0] for array in inputs.values() if array.ndim}) == 1
    if not divisible:
        if not fits:
            raise errors.invalid(
                f"{count} rows of up to {load.tokens.max()} word pieces and {load.masks.max()} masks, computed whole:"
                f" at most {tokens} word pieces, {masks} masks and {size} bytes are; send fewer or shorter rows"
            )
        return [Part(inputs, None, load.is_small)]
    if fits and count <= most_rows:
        return [Part(inputs, None, load.is_small)]
    parts, begin = [], 0
    order = np.argsort(load.tokens, kind="stable")
    most = load.of_rows(order)
    while begin < count:
        end, widest, masked, read, own_tokens = begin, 0, 0, 0, 0
        while end < count:
            widest, masked = max(widest, int(most.tokens[end])), max(masked, int(most.masks[end]))
            read += int(most.bytes[end])
            own_tokens += int(most.tokens[end])
            rows = end - begin + 1
            too_many = rows > most_rows or rows * widest > tokens or rows * masked > masks or read > size
            # At most half of a part is padding.
            if rows > 1 and (too_many or rows * widest > 2 * own_tokens):
                break
            end += 1
        own = order[begin:end]
        taken = {name: array[own] for name, array in inputs.items()}
        parts.append(Part(taken, own, load.of_rows(own).is_small))
        begin = end
    return parts


def answer_bytes(signature: SignatureDef, wanted: Sequence[str], load: Load) -> int:
    """Upper bound of the memory for the outputs `wanted` of all rows, computed from their shapes before execution.

    Unknown dimensions are those of the widest row, in choices, words, masks or word pieces.
    """
    marked = marker(signature)
    if load.texts.max(initial=0) > 1:
        width = load.texts.max()
    elif marked == "words":
        width = load.longest.max(initial=0) // 2 + 1
    elif marked and len(sizes(signature.outputs[marked])) > 2:
        width = load.masks.max(initial=0)
    else:
        width = load.tokens.max(initial=0)
    total = 0
    for name in wanted:
        info = signature.outputs[name]
        each = _STRING_BYTES if info.dtype == types_pb2.DT_STRING else tensors.numpy_dtype(info.dtype).itemsize
        for number, size in enumerate(sizes(info)):
            each *= size if size >= 0 else len(load.tokens) if number == 0 else int(width)
        total += each
    return total


def joined(parts: Sequence[Part], answers: list[dict[str, np.ndarray]], rows: int) -> dict[str, np.ndarray]:
    """Join the answers of parts into the request's; rows are padded to the width of the widest part."""
    outputs = {}
    for name in list(answers[0]):
        arrays = [answer.pop(name) for answer in answers]  # frees them one by one
        shape = (rows, *np.max([array.shape[1:] for array in arrays], axis=0).astype(int))
        whole = np.full(shape, _padding(name, arrays) if arrays[0].dtype == object else 0, arrays[0].dtype)
        for part, array in zip(parts, arrays, strict=True):
            whole[(part.rows, *map(slice, array.shape[1:]))] = array
        outputs[name] = whole
    return outputs


def is_divisible(signature: SignatureDef, independent: bool) -> bool:
    """Whether rows of a signature may be computed in parts.

    `independent`: a batch answers each row as if it were alone. For other signatures rows are known to be independent
    if all inputs and outputs have rows, and if only inputs determine the width of outputs (multiple choice).
    """
    if independent:
        return True
    infos = [*signature.inputs.values(), *signature.outputs.values()]
    if not signature.inputs or not signature.outputs or not all(sizes(info)[:1] == [-1] for info in infos):
        return False
    return any(map(is_varying, signature.inputs.values()))


def _padding(name: str, arrays: Sequence[np.ndarray]) -> bytes:
    """Padding as in `bert_keras.saved_model.text_inputs` for `tokens` [B, T]; "" for every other string."""
    if name != "tokens" or arrays[0].ndim != 2:
        return b""
    return b"<pad>" if any(array.size and array[0, 0] == b"<s>" for array in arrays) else b"[PAD]"


def _of_example(row: int, serialized: bytes) -> tuple[int, int]:
    """Masks and texts of a serialized tf.Example; without a mask feature, unless it is a task row, all positions."""
    try:
        features = Example.FromString(serialized).features.feature
    except DecodeError:
        raise errors.invalid(f'input "{_EXAMPLES}", row {row}: not a serialized tf.Example') from None
    ids = "masked_lm_positions" if "masked_lm_positions" in features else "input_ids"
    masks = len(features[ids].int64_list.value) if ids in features else 0
    return masks, max((len(feature.bytes_list.value) for feature in features.values()), default=1) or 1
