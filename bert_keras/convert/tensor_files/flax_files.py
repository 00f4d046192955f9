"""`flax_model.msgpack`, the weights of transformers' Flax classes: a tree of names in MessagePack.

An array is an extension of type 1 that holds [shape, name of the type, numbers] in MessagePack again. A large one is a
map of its shape and its parts, each a map by number.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes  # noqa: F401 (makes numpy know bfloat16)
import numpy as np

from bert_keras.convert.families.weight import StoredTensor
from bert_keras.errors import InputError
from bert_keras.files import check_download

_ARRAY, _IN_PARTS = 1, "__msgpack_chunked_array__"


class _Reader:
    """Reads the values of MessagePack that such a file has, from `data`."""

    def __init__(self, data: memoryview):
        self.data, self.position = data, 0

    def value(self) -> Any:
        code = self._number(1)
        if code < 0x80:
            return code
        if code < 0xA0:
            return self._many(code & 0x0F, is_map=code < 0x90)
        if code < 0xC0:
            return str(self._bytes(code & 0x1F), "utf-8")
        if code in (0xC2, 0xC3):
            return code == 0xC3
        # Their size follows, in 1, 2, 4 or 8 bytes; an extension's type comes after it.
        if 0xC4 <= code <= 0xC6:
            return self._bytes(self._number(1 << code - 0xC4))
        if 0xC7 <= code <= 0xC9:
            return self._array(self._number(1 << code - 0xC7))
        if 0xCC <= code <= 0xCF:
            return self._number(1 << code - 0xCC)
        if 0xD4 <= code <= 0xD8:
            return self._array(1 << code - 0xD4)
        if 0xD9 <= code <= 0xDB:
            return str(self._bytes(self._number(1 << code - 0xD9)), "utf-8")
        if 0xDC <= code <= 0xDF:
            return self._many(self._number(2 << (code & 1)), is_map=code >= 0xDE)
        raise ValueError(f"the code {code:#x} is no part of a tree of arrays")

    def _many(self, count: int, is_map: bool) -> Any:
        return {self.value(): self.value() for _ in range(count)} if is_map else [self.value() for _ in range(count)]

    def _array(self, size: int) -> np.ndarray:
        if (kind := self._number(1)) != _ARRAY:
            raise ValueError(f"an extension has type {kind}")
        shape, dtype, numbers = _Reader(self._bytes(size)).value()
        return np.frombuffer(numbers, np.dtype(dtype)).reshape(shape)

    def _number(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "big")

    def _bytes(self, size: int) -> memoryview:
        part = self.data[self.position : self.position + size]
        if len(part) < size:
            raise EOFError("it ends too early")
        self.position += size
        return part


def tensors_of_flax_file(path: str, files: contextlib.ExitStack) -> list[StoredTensor]:
    """The tensors of a file, which are mapped into memory and not copied.

    Raises:
        InputError: it is damaged, or holds more than arrays by name.
    """
    check_download(path)
    try:
        tree = _Reader(memoryview(np.memmap(path, "uint8", "r"))).value()
        return [StoredTensor(name, path, shape, read) for name, shape, read in _leaves(tree.get("params", tree), "")]
    except Exception as error:  # damaged bytes raise anything
        raise InputError(f"{path} is damaged ({type(error).__name__}: {error}); copy it again") from error


def _leaves(tree: Any, start: str) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    for key, value in tree.items():
        name = start + key
        if isinstance(value, dict) and _IN_PARTS in value:
            shape, parts = (_in_order(value[field]) for field in ("shape", "chunks"))
            if sum(part.size for part in parts) != math.prod(shape):
                raise ValueError(f"the parts of {name} are not as large as it is")
            yield name, tuple(shape), lambda parts=parts, shape=shape: np.concatenate(parts).reshape(shape)
        elif isinstance(value, dict):
            yield from _leaves(value, f"{name}/")
        else:
            yield name, value.shape, lambda value=value: value


def _in_order(by_number: dict[str, Any]) -> list[Any]:
    return [by_number[str(i)] for i in range(len(by_number))]
