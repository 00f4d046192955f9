"""KServe's V2 over REST, the Open Inference Protocol, with its extension for binary tensors.

https://github.com/kserve/open-inference-protocol; Triton's HTTP clients speak it, too.

    POST /v2/models/NAME[/versions/N]/infer
        {"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}],
         "outputs": [{"name": "embedding"}], "parameters": {"signature_name": "embed"}}
    ->  {"model_name": "bert", "model_version": "1", "outputs": [{"name": "embedding", "datatype": "FP32", ...}]}

`outputs` and `parameters` are optional; `data` is flat or nested. Tensors with the parameter `binary_data_size` follow
the JSON, whose length is then in the header `Inference-Header-Content-Length`: numbers little-endian, texts each after
its length as a uint32.

    GET /v2, /v2/health/live, /v2/health/ready, /v2/models/NAME[/versions/N], /v2/models/NAME[/versions/N]/ready
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from serving import errors, tensors
from serving.api import json_tensors
from serving.middleware.limits import LimitSettings, check_rows
from serving.models.servable import DEFAULT_SIGNATURE, Servable
from serving.protos import SignatureDef, TensorInfo

SERVER = {"name": "bert-tfx", "version": "2", "extensions": ["binary_tensor_data"]}
LENGTH_HEADER = "Inference-Header-Content-Length"
_BINARY_SIZE = "binary_data_size"
_MOST_DIMENSIONS = 32  # NumPy's


class InferRequest:
    """An infer request, read from its body, with the names of a signature and its outputs as in `Inference.predict`.

    INVALID_ARGUMENT names a wrong field.
    """

    def __init__(self, body: bytes, json_length: str | None):
        if json_length is not None and not (json_length.isdecimal() and int(json_length) <= len(body)):
            raise errors.invalid(f"{LENGTH_HEADER} is {json_tensors.show(json_length)}; the body has {len(body)} bytes")
        end = len(body) if json_length is None else int(json_length)
        self._request, self._binary = json_tensors.parse_object(body[:end]), memoryview(body)[end:]
        self._inputs, outputs = _tensors(self._request, "inputs"), _tensors(self._request, "outputs")
        self.output_names = [output["name"] for output in outputs]
        if isinstance(given := self._request.get("id"), str):
            json_tensors.to_bytes(given)  # refuses invalid UTF-8
        parameters = _parameters(self._request)
        self.signature_name = parameters.get("signature_name", "")
        if not isinstance(self.signature_name, str):
            raise errors.invalid("the parameter signature_name must be a string")
        self._all_binary = parameters.get("binary_data_output") is True
        self._is_binary = {output["name"]: _parameters(output).get("binary_data") is True for output in outputs}

    def arrays(self, signature: SignatureDef, limits: LimitSettings) -> dict[str, np.ndarray]:
        """The inputs, in the signature's dtypes; sizes are checked before conversion."""
        arrays, rest = {}, self._binary
        for tensor in self._inputs:
            name, shape, length = tensor["name"], tensor.get("shape"), _parameters(tensor).get(_BINARY_SIZE)
            if name not in signature.inputs:
                expected = ", ".join(sorted(signature.inputs))
                raise errors.invalid(f"no input {json_tensors.show(name)}; expected: {expected}")
            if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
                raise errors.invalid(f"input {name}: shape must be a list of sizes")
            check_rows(name, shape, limits)
            # A size of 0 must not hide sizes that NumPy refuses.
            if math.prod(max(size, 1) for size in shape) > limits.max_request_bytes or len(shape) > _MOST_DIMENSIONS:
                raise errors.invalid(f"input {name}: the shape {json_tensors.show(shape)} is too large")
            info = signature.inputs[name]
            dtype, expects = tensors.numpy_dtype(info.dtype), _described(name, info)
            if tensor.get("datatype") != expects["datatype"] or not tensors.fits(shape, info):
                raise errors.invalid(
                    f"{expects} is expected; given: {json_tensors.show(tensor.get('datatype'))}{shape}"
                )
            if length is None:
                data = tensor.get("data")
                nested = shape if isinstance(data, list) and data and isinstance(data[0], list) else [math.prod(shape)]
                arrays[name] = json_tensors.filled(name, data, nested, dtype).reshape(shape)
                continue
            if type(length) is not int or not 0 <= length <= len(rest):
                raise errors.invalid(
                    f"input {name}: {_BINARY_SIZE} is {json_tensors.show(length)} of {len(rest)} bytes"
                )
            arrays[name], rest = (
                _from_binary(name, rest[:length], math.prod(shape), dtype).reshape(shape),
                rest[length:],
            )
        if len(rest):
            raise errors.invalid(f"{len(rest)} bytes follow the last binary input")
        return arrays

    def answer(self, servable: Servable, outputs: Mapping[str, np.ndarray]) -> tuple[bytes, dict[str, str]]:
        """Body of the answer, and its headers."""
        described, parts = [], []
        for name, array in outputs.items():
            tensor: dict[str, Any] = {"name": name, "datatype": _datatype(array.dtype), "shape": list(array.shape)}
            if self._is_binary.get(name, self._all_binary):
                parts.append(_to_binary(array))
                tensor["parameters"] = {_BINARY_SIZE: len(parts[-1])}
            else:
                tensor["data"] = json_tensors.serializable("", array.ravel())
            described.append(tensor)
        answer = {"model_name": servable.name, "model_version": str(servable.version), "outputs": described}
        if isinstance(self._request.get("id"), str):
            answer["id"] = self._request["id"]
        text = json_tensors.dumps(answer)
        if not parts:
            return text, {"Content-Type": "application/json"}
        return b"".join([text, *parts]), {"Content-Type": "application/octet-stream", LENGTH_HEADER: str(len(text))}


def metadata(servable: Servable, versions: Sequence[int]) -> dict[str, Any]:
    """The model's metadata: the tensors of its signature serving_default; a size of -1 is any."""
    signature = servable.signature(DEFAULT_SIGNATURE)
    sides = {"inputs": signature.inputs, "outputs": signature.outputs}
    listed = {side: [_described(*item) for item in sorted(infos.items())] for side, infos in sides.items()}
    return {"name": servable.name, "versions": [str(number) for number in versions], "platform": "bert-tfx", **listed}


def _datatype(dtype: np.dtype) -> str:
    kind = {"f": "FP", "i": "INT", "u": "UINT"}.get(dtype.kind, "")
    return f"{kind}{8 * dtype.itemsize}" if kind else "BOOL" if dtype.kind == "b" else "BYTES"


def _described(name: str, info: TensorInfo) -> dict[str, Any]:
    shape = [dim.size for dim in info.tensor_shape.dim]
    return {"name": name, "datatype": _datatype(tensors.numpy_dtype(info.dtype)), "shape": shape}


def _tensors(request: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    values = request.get(key) or []
    if not isinstance(values, list) or not all(isinstance(v, dict) and isinstance(v.get("name"), str) for v in values):
        raise errors.invalid(f"{key} must be a list of objects, each with a name")
    for value in values:
        json_tensors.to_bytes(value["name"])  # refuses invalid UTF-8
    return values


def _parameters(value: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(parameters := value.get("parameters") or {}, dict):
        return parameters
    raise errors.invalid("parameters must be an object")


def _from_binary(name: str, data: memoryview, count: int, dtype: np.dtype) -> np.ndarray:
    if dtype.kind != "O":
        if len(data) != count * dtype.itemsize:
            raise errors.invalid(f"input {name}: {len(data)} bytes for {count} {_datatype(dtype)}")
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
    texts, begin = [], 0
    while begin + 4 <= len(data):
        end = begin + 4 + int.from_bytes(data[begin : begin + 4], "little")
        texts.append(bytes(data[begin + 4 : end]))
        begin = end
    if begin != len(data) or len(texts) != count:
        raise errors.invalid(f"input {name}: {len(data)} bytes are not {count} texts, each after its length")
    return np.fromiter(texts, object, count)


def _to_binary(array: np.ndarray) -> bytes:
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return b"".join(len(text).to_bytes(4, "little") + text for text in array.ravel())
