"""OpenAI's `POST /v1/embeddings` over the signature `embed`: https://platform.openai.com/docs/api-reference/embeddings.

    {"model": "bert", "input": "a text" or ["texts"], "encoding_format": "float", "base64" or null, "dimensions": 256}
    -> {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [...]}], "model": "bert",
        "usage": {"prompt_tokens": 4, "total_tokens": 4}}

`base64` is that of little-endian values. Errors are objects, as OpenAI's clients read them; Voyage's read `detail`.

`dimensions` (Voyage: `output_dimension`) cuts vectors, and scales them to the length that they had. A header warns if
the model was not trained for it (`serving.models.servable.Servable.dimensions`).

`output_dtype` is Voyage's; `encoding_format` may name the same types, for lists of integers. No range is learned:

| type | values of a vector of D dimensions, scaled to length 1 |
|---|---|
| `int8` | times 127 sqrt(D) / 5, rounded, at most 127 in size: dot products are cosines times a constant |
| `uint8` | those of `int8`, plus 128 |
| `ubinary` | D / 8 bytes, a bit a dimension, the first the highest; 1 where the value is above 0 |
| `binary` | those of `ubinary`, minus 128 |

`POST /v2/embed` is Cohere's, of texts: `texts`, `embedding_types`, `output_dimension`; `input_type` changes nothing.
"""

import base64
import uuid
from collections.abc import Callable, Collection, Container, Mapping
from typing import Any, TypeAlias

import numpy as np
from starlette.responses import JSONResponse

from serving import errors
from serving.api import json_tensors
from serving.models.manager import Target

SIGNATURE = "embed"
OUTPUTS = ("embedding", "num_tokens")
# Bytes of a number as JSON in all types, relative to a float32's, as `json_tensors.GROWTH`.
GROWTH = 2 * json_tensors.GROWTH
WARNING_HEADER = "X-Dimensions-Warning"
_TYPES = ("float", "int8", "uint8", "binary", "ubinary")
_BASE64 = "base64"
# The largest value of int8 is so many times the root mean square of a vector's values; MiniLM's reach 5.1 times.
_INT8_RANGE = 5.0

Parse: TypeAlias = Callable[[bytes], tuple[Target, dict[str, Any]]]


def parse_request(body: bytes) -> tuple[Target, dict[str, Any]]:
    """The model, and the request with its texts as a signature's inputs; INVALID_ARGUMENT names a wrong field."""
    request = json_tensors.parse_object(body)
    texts = request.get("input")
    texts = [texts] if isinstance(texts, str) else texts
    if not is_texts(texts):
        raise errors.invalid(
            "input must be a text or a list of at least one text; token ids are not taken, as clients send those of"
            " other vocabularies (LangChain: check_embedding_ctx_length=False)"
        )
    encoding = _choice(request, "encoding_format", (*_TYPES, _BASE64))
    parsed = {
        "dimensions": _dimensions(request, "dimensions" if "dimensions" in request else "output_dimension"),
        "type": _choice(request, "output_dtype", _TYPES, "float" if encoding == _BASE64 else encoding),
        _BASE64: encoding == _BASE64,
        json_tensors.COLUMNS: texts,
    }
    return target_of(request), {"model": request["model"], **parsed}


def parse_cohere(body: bytes) -> tuple[Target, dict[str, Any]]:
    """As `parse_request`, of Cohere's `/v2/embed`."""
    request = json_tensors.parse_object(body)
    texts, types = request.get("texts"), request.get("embedding_types") or ["float"]
    if not is_texts(texts):
        raise errors.invalid("texts must be a list of at least one text; images and inputs are not taken")
    if not isinstance(types, list) or not all(name in (*_TYPES, _BASE64) for name in types):
        raise errors.invalid(f"embedding_types must be a list of {', '.join((*_TYPES, _BASE64))}")
    parsed = {"dimensions": _dimensions(request, "output_dimension"), "types": types, json_tensors.COLUMNS: texts}
    return target_of(request), parsed


def is_texts(value: Any) -> bool:
    """Whether a JSON value is a list of texts, at least one."""
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def target_of(request: Mapping[str, Any]) -> Target:
    """The newest version of the named model; INVALID_ARGUMENT without a name."""
    model = request.get("model")
    if not isinstance(model, str) or not model:
        raise errors.invalid("model must be the name of a served model; GET /v1/models lists them")
    return Target(model)


def _choice(request: Mapping[str, Any], field: str, names: Collection[str], default: str = "float") -> str:
    value = request.get(field)
    if value is not None and value not in names:
        raise errors.invalid(f"{field} must be one of {', '.join(names)}")
    return default if value is None else value


def _dimensions(request: Mapping[str, Any], field: str) -> int | None:
    wanted = request.get(field)
    if wanted is not None and (type(wanted) is not int or wanted < 1):
        raise errors.invalid(f"{field} is {json_tensors.show(wanted)}; it must be a whole number, at least 1")
    return wanted


def check(model: str, signatures: Container[str]) -> None:
    """Refuse a model without vectors; INVALID_ARGUMENT says how it gets them."""
    if SIGNATURE not in signatures:
        raise errors.invalid(
            f"{model} has no vectors of texts: push one of `bert-tfx finetune sentence-similarity`, or add them with "
            "`bert-tfx convert MODEL NEW_VERSION --from bert-tfx --to bert-tfx --pooling mean`"
        )


def headers(request: Mapping[str, Any], outputs: Mapping[str, np.ndarray], trained: Container[int]) -> dict[str, str]:
    """A warning, if the model was not trained for vectors of the wanted dimensions; `trained` are those that it was."""
    wanted = request["dimensions"]
    if wanted in (None, outputs["embedding"].shape[1]) or wanted in trained:
        return {}
    return {WARNING_HEADER: f"the model was not trained for vectors of {wanted} dimensions"}


def answer(request: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> bytes:
    """JSON answer to `request` from the signature's outputs; INVALID_ARGUMENT for dimensions that they lack."""
    vectors, tokens = _cut(request, outputs), int(outputs["num_tokens"].sum())
    encoded = _encoded(vectors, request["type"], request[_BASE64])
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(encoded)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_tensors.dumps({"object": "list", "data": data, "model": request["model"], "usage": usage})


def cohere_answer(request: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> bytes:
    """As `answer`, of Cohere's `/v2/embed`."""
    vectors, tokens = _cut(request, outputs), int(outputs["num_tokens"].sum())
    by_type = {
        name: _encoded(vectors, "float" if name == _BASE64 else name, name == _BASE64) for name in request["types"]
    }
    meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}}
    texts = request[json_tensors.COLUMNS]
    return json_tensors.dumps({"id": str(uuid.uuid4()), "embeddings": by_type, "texts": texts, "meta": meta})


def _cut(request: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first dimensions of the vectors, float32 [B, D], of the same lengths as the whole ones."""
    vectors, wanted = outputs["embedding"].astype("<f4", copy=False), request["dimensions"]
    if wanted is None or wanted == vectors.shape[1]:
        return vectors
    if wanted > vectors.shape[1]:
        raise errors.invalid(f"dimensions is {wanted}; the model's vectors have {vectors.shape[1]}")
    short = vectors[:, :wanted]
    return _scaled(short, np.linalg.norm(vectors, axis=1, keepdims=True))


def _scaled(vectors: np.ndarray, length: Any) -> np.ndarray:
    """The vectors, scaled to `length`; a vector of zeros remains."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors * (length / np.where(lengths == 0, 1, lengths))


def _encoded(vectors: np.ndarray, kind: str, as_base64: bool) -> list[Any]:
    if kind.endswith("int8"):
        dimensions = vectors.shape[1]
        whole = np.rint(_scaled(vectors, 127 * dimensions**0.5 / _INT8_RANGE)).clip(-127, 127)
        vectors = (whole + 128).astype(np.uint8) if kind == "uint8" else whole.astype(np.int8)
    elif kind != "float":
        if vectors.shape[1] % 8:
            raise errors.invalid(f"{kind} is for a multiple of 8 dimensions; the vectors have {vectors.shape[1]}")
        bits = np.packbits(vectors > 0, axis=1)
        vectors = (bits.astype(np.int16) - 128).astype(np.int8) if kind == "binary" else bits
    if as_base64:
        return [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
    return [json_tensors.serializable("embedding", vector) for vector in vectors]


# Of `/v1/embeddings` and `/v2/embed`: what reads a request, and what writes its answer.
FORMS = ((parse_request, answer), (parse_cohere, cohere_answer))


def error(status: int, message: str) -> JSONResponse:
    """An error as OpenAI's clients read it, and Voyage's."""
    kind = "invalid_request_error" if status < 429 else "rate_limit_error" if status == 429 else "server_error"
    described = {"message": message, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": described, "detail": message}, status_code=status)
