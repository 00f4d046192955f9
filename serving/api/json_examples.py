"""JSON of TensorFlow Serving's Classify and Regress.

    {"examples": [{"text": "a"}, {"text": "b"}], "context": {"text_pair": "c"}, "signature_name": "classify"}

`context` is optional and merged into every example. A value is a string or `{"b64": "..."}` (bytes), a number (float if
it has a decimal point, else int64), true or false (int64), or a list of values of one type. The answers:

    {"results": [[["yes", 0.9], ["no", 0.1]], ...]}     classify: [label, score] of every class, for each example
    {"results": [3.5, ...]}                             regress
"""

import math
from typing import Any

import numpy as np

from serving import errors
from serving.api import json_tensors
from serving.middleware.limits import LimitSettings, check_rows
from serving.protos import ClassificationResponse, Example, Input, RegressionResponse

_EXAMPLES, _CONTEXT, _RESULTS = "examples", "context", "results"


def request_input(request: dict[str, Any], limits: LimitSettings) -> Input:
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
    return _answer([[[entry.label, _score(entry.score)] for entry in row.classes] for row in rows])


def regressions(response: RegressionResponse) -> bytes:
    """JSON answer to a Regress request."""
    return _answer([_score(regression.value) for regression in response.result.regressions])


def _answer(results: list[Any]) -> bytes:
    return json_tensors.dumps({_RESULTS: results})


def _score(value: float) -> Any:
    return json_tensors.serializable("", np.float32(value))


def _example(value: Any) -> Example:
    if not isinstance(value, dict):
        raise errors.invalid(f"Example must be JSON object but got JSON {type(value).__name__}")
    example = Example()
    for name, content in value.items():
        json_tensors.to_bytes(name)  # refuses a name that is not UTF-8
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
    if isinstance(item, str) or json_tensors.is_b64(item):
        return "bytes_list", json_tensors.to_bytes(item)
    raise errors.invalid(f"Feature: {name} has element with unexpected JSON type: {type(item).__name__}")
