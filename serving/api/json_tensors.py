"""JSON of TensorFlow Serving's requests and answers: Predict, Classify and Regress.

| | request | request, for a single input | answer |
|---|---|---|---|
| rows | `{"instances": [{"text": "a"}, ...]}` | `{"instances": ["a", "b"]}` | `{"predictions": [...]}` |
| columns | `{"inputs": {"text": ["a", "b"]}}` | `{"inputs": ["a", "b"]}` | `{"outputs": ...}` |

An answer with one output is bare; with more it is an object keyed by output. Bytes are `{"b64": "..."}`. NaN and
Infinity are written literally, as TensorFlow Serving does.

Classify and Regress:

    {"examples": [{"text": "a"}, {"text": "b"}], "context": {"text_pair": "c"}, "signature_name": "classify"}

`context` is optional and merged into every example. A value is a string or `{"b64": "..."}` (bytes), a number (float if
it has a decimal point, else int64), true or false (int64), or a list of values of one type. The answers:

    {"results": [[["yes", 0.9], ["no", 0.1]], ...]}     classify: [label, score] of every class, for each example
    {"results": [3.5, ...]}                             regress
"""

import base64
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from serving import errors, tensors
from serving.middleware.limits import check_rows
from serving.middleware.settings import LimitSettings
from serving.protos import ClassificationResponse, Example, Input, RegressionResponse, SignatureDef, TensorInfo

ROWS, COLUMNS = "instances", "inputs"
_EXAMPLES, _CONTEXT, _RESULTS = "examples", "context", "results"
_ANSWER_KEY = {ROWS: "predictions", COLUMNS: "outputs"}
# TensorFlow Serving's convention: outputs with this suffix are always b64.
_BYTES_SUFFIX = "_bytes"
_MOST_DIMENSIONS = 32  # NumPy's
# Bytes of a number as JSON relative to an array's: a float32 of 4 bytes is up to 16, as in "-1.1754944e-38, ".
GROWTH = 4


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a request; INVALID_ARGUMENT unless it is a JSON object whose `signature_name`, if any, is a string."""
    try:
        request = json.loads(body)
    except RecursionError:
        raise errors.invalid("JSON Parse error: nested too deeply") from None
    except ValueError as error:  # malformed JSON, not UTF-8, or a number with thousands of digits
        raise errors.invalid(f"JSON Parse error: {error}") from None
    if not isinstance(request, dict):
        raise errors.invalid(f"JSON Value: {show(request)} Is not object")
    if not isinstance(request.get("signature_name", ""), str):
        raise errors.invalid("'signature_name' key must be a string value.")
    to_bytes(request.get("signature_name", ""))  # refuses invalid UTF-8
    return request


def parse_request(body: bytes) -> dict[str, Any]:
    """Parse a Predict request; INVALID_ARGUMENT unless it has exactly one of "instances" and "inputs"."""
    request = parse_object(body)
    if (ROWS in request) == (COLUMNS in request):
        raise errors.invalid(f"expecting exactly one of the keys '{COLUMNS}' and '{ROWS}'")
    return request


def request_inputs(request: Mapping[str, Any], signature: SignatureDef, limits: LimitSettings) -> dict[str, np.ndarray]:
    """Inputs of the signature from a parsed request, in the signature's dtypes; sizes are checked before conversion."""
    values = request[ROWS] if ROWS in request else request[COLUMNS]
    if ROWS in request:
        if not isinstance(values, list) or not values:
            raise errors.invalid(f"'{ROWS}' must be a list of at least one element")
        name = next(iter(values[0]), "") if _is_object(values[0]) else _only_input(signature)
        check_rows(name, [len(values)], limits)
        if any(_is_object(row) for row in values):
            values = _columns(values)
    if not _is_object(values):
        values = {_only_input(signature): values}
    arrays = {}
    for name, value in values.items():
        to_bytes(name)  # refuses invalid UTF-8, which protobuf maps cannot look up
        if name not in signature.inputs:
            raise errors.invalid(
                f"JSON object: does not have named input: {name}; expected: {', '.join(sorted(signature.inputs))}"
            )
        arrays[name] = _array(name, value, signature.inputs[name], limits)
    return arrays


def answer(request: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> bytes:
    """JSON answer to `request`, in rows or columns like the request."""
    if ROWS in request:
        sizes = {name: array.shape[:1] for name, array in outputs.items()}
        if len(set(sizes.values())) != 1 or () in sizes.values():
            raise errors.invalid(f"outputs do not share a batch size ({sizes}): ask in columns, with '{COLUMNS}'")
        columns = [[serializable(name, row) for row in array] for name, array in outputs.items()]
        rows = zip(*columns, strict=True)
        result = columns[0] if len(outputs) == 1 else [dict(zip(outputs, row, strict=True)) for row in rows]
        return dumps({_ANSWER_KEY[ROWS]: result})
    values = {name: serializable(name, array) for name, array in outputs.items()}
    return dumps({_ANSWER_KEY[COLUMNS]: next(iter(values.values())) if len(values) == 1 else values})


def dumps(value: Any) -> bytes:
    """JSON of `serializable` values; a float32 is the shortest decimal that reads back as it: 0.2."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def _columns(rows: list[Any]) -> dict[str, list[Any]]:
    for index, row in enumerate(rows):
        if not _is_object(row) or not _is_object(rows[0]) or row.keys() != rows[0].keys():
            raise errors.invalid(
                f"Failed to process element: {index} of '{ROWS}' list: every element must be an object of the same keys"
            )
    return {name: [row[name] for row in rows] for name in rows[0]}


def _only_input(signature: SignatureDef) -> str:
    required = sorted(set(signature.inputs) - set(signature.defaults))
    if len(required) != 1:
        raise errors.invalid(f"plain values, but expecting objects keyed by input: {', '.join(required)}")
    return required[0]


def is_b64(value: Any) -> bool:
    """Return whether a JSON value stands for bytes: `{"b64": "..."}`."""
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def to_bytes(value: str | dict[str, str]) -> bytes:
    """Bytes of a JSON string or of `{"b64": "..."}`; INVALID_ARGUMENT if it is malformed."""
    try:
        return value.encode() if isinstance(value, str) else base64.b64decode(value["b64"], validate=True)
    except UnicodeEncodeError:
        raise errors.invalid(f"JSON Value: {show(value)} holds half of a surrogate pair") from None
    except ValueError as error:  # binascii's, or a character outside ASCII
        raise errors.invalid(f"Unable to base64 decode: {error}") from None


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_b64(value)


def _array(name: str, value: Any, info: TensorInfo, limits: LimitSettings) -> np.ndarray:
    dtype = tensors.numpy_dtype(info.dtype)
    shape = []
    first = value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    if len(shape) > _MOST_DIMENSIONS:
        raise errors.invalid(f"input {name}: lists nested more than {_MOST_DIMENSIONS} deep")
    check_rows(name, shape, limits)
    if not tensors.fits(shape, info):
        given = f"{tensors.dtype_name(dtype)}{shape}"
        raise errors.invalid(f"expecting {tensors.describe(name, info)}; given: {given}")
    return filled(name, value, shape, dtype)


def filled(name: str, value: Any, shape: list[int], dtype: np.dtype) -> np.ndarray:
    """Array of nested lists that must have this shape; INVALID_ARGUMENT."""
    leaves = [_leaf(leaf, dtype) for leaf in _leaves(name, value, shape)]
    array = np.empty(len(leaves), dtype)
    array[:] = leaves
    return array.reshape(shape)


def _leaves(name: str, value: Any, shape: list[int]) -> Iterator[Any]:
    if not shape:
        if isinstance(value, list):
            raise errors.invalid(f"input {name}: lists nested more deeply than in the first element")
        yield value
        return
    if not isinstance(value, list) or len(value) != shape[0]:
        raise errors.invalid(
            f"input {name}: expected a list of size {shape[0]} as in the first element, got {show(value)}"
        )
    for item in value:
        yield from _leaves(name, item, shape[1:])


def _leaf(value: Any, dtype: np.dtype) -> Any:
    if dtype.kind == "O" and (isinstance(value, str) or is_b64(value)):
        return to_bytes(value)
    kinds: tuple[type, ...] = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float)}.get(dtype.kind, ())
    if not isinstance(value, kinds) or (isinstance(value, bool) and dtype.kind != "b"):
        raise errors.invalid(f"JSON Value: {show(value)} is not of expected type: {tensors.dtype_name(dtype)}")
    if dtype.kind in "iuf":
        limit: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        # NaN and Infinity are allowed; an integer may be too long for math.isfinite.
        finite = not isinstance(value, float) or math.isfinite(value)
        if finite and not limit.min <= value <= limit.max:
            raise errors.invalid(f"Cannot convert JSON value: {show(value)} to {dtype} without loss of precision.")
    return value


def serializable(name: str, value: Any) -> Any:
    """An output, an array, or one row of it, for `dumps`; a row may be bytes or a number."""
    if isinstance(value, bytes):
        return b64_value(value) if name.endswith(_BYTES_SUFFIX) else text_value(value)
    if value.dtype == object:
        encoded = np.empty(value.shape, object)
        encoded.ravel()[:] = [serializable(name, item) for item in value.ravel()]
        return encoded.tolist()
    if value.dtype.kind != "f" or np.isfinite(value).all():
        return np.ascontiguousarray(value) if value.ndim else value[()]
    if value.ndim > 1:
        return [serializable(name, row) for row in value]
    # JSON has no such numbers: orjson writes null for them.
    return orjson.Fragment(json.dumps(value.astype("U").astype(np.float64).tolist()))


def b64_value(item: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(item).decode()}


def text_value(item: bytes) -> str | dict[str, str]:
    """A string as JSON; `{"b64": "..."}` if it is not UTF-8."""
    try:
        return item.decode()
    except UnicodeDecodeError:
        return b64_value(item)


def show(value: Any) -> str:
    """A JSON value as at most 83 characters, for a message."""
    try:
        text = ascii(value)
    except RecursionError:
        text = "a value nested too deeply"
    return text if len(text) <= 80 else f"{text[:80]}..."


def examples_input(request: dict[str, Any], limits: LimitSettings) -> Input:
    """Examples of a parsed request; INVALID_ARGUMENT if they are malformed or too many."""
    if _EXAMPLES not in request:
        raise errors.invalid(f"When method is classify, key '{_EXAMPLES}' is expected and was not found")
    examples = request[_EXAMPLES]
    if not isinstance(examples, list):
        raise errors.invalid(f"Expecting '{_EXAMPLES}' value to be an list/array")
    if not examples:
        raise errors.invalid(f"'{_EXAMPLES}' value is an empty array")
    check_rows(_EXAMPLES, [len(examples)], limits)
    given = Input()
    if _CONTEXT in request:
        given.example_list_with_context.context.CopyFrom(_example(request[_CONTEXT]))
        given.example_list_with_context.examples.extend(_example(example) for example in examples)
    else:
        given.example_list.examples.extend(_example(example) for example in examples)
    return given


def classifications(response: ClassificationResponse) -> bytes:
    """JSON answer to a Classify request."""
    rows = response.result.classifications
    return dumps({_RESULTS: [[[entry.label, _float(entry.score)] for entry in row.classes] for row in rows]})


def regressions(response: RegressionResponse) -> bytes:
    """JSON answer to a Regress request."""
    return dumps({_RESULTS: [_float(regression.value) for regression in response.result.regressions]})


def _float(value: float) -> Any:
    return serializable("", np.float32(value))


def _example(value: Any) -> Example:
    if not isinstance(value, dict):
        raise errors.invalid(f"Example must be JSON object but got JSON {type(value).__name__}")
    example = Example()
    for name, content in value.items():
        to_bytes(name)  # refuses a name that is not UTF-8
        feature = example.features.feature[name]
        for item in content if isinstance(content, list) else [content]:
            kind, stored = _stored(name, item)
            if feature.WhichOneof("kind") not in (None, kind):
                expected = feature.WhichOneof("kind").removesuffix("_list")
                raise errors.invalid(f"Unexpected element type in feature: {name} expecting type: {expected}")
            getattr(feature, kind).value.append(stored)
    return example


def _stored(name: str, item: Any) -> tuple[str, Any]:
    """Name of the Feature's field for a JSON value, and the value to put in it."""
    if isinstance(item, bool):
        return "int64_list", int(item)
    if isinstance(item, int):
        if not -(2**63) <= item < 2**63:
            raise errors.invalid(f"Feature: {name} has uint64 element. Only int64 is supported.")
        return "int64_list", item
    if isinstance(item, float):
        if math.isfinite(item) and abs(item) > np.finfo(np.float32).max:
            raise errors.invalid(f"Cannot convert JSON value: {item} to float without loss of precision.")
        return "float_list", item
    if isinstance(item, str) or is_b64(item):
        return "bytes_list", to_bytes(item)
    raise errors.invalid(f"Feature: {name} has element with unexpected JSON type: {type(item).__name__}")
