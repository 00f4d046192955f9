"""OpenAI's `POST /v1/embeddings` over the signature `embed`: https://platform.openai.com/docs/api-reference/embeddings.

    {"model": "bert", "input": "a text" or ["texts"], "encoding_format": "float", "base64" or null, "dimensions": 256}
    -> {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [...]}], "model": "bert",
        "usage": {"prompt_tokens": 4, "total_tokens": 4}}

`base64` is that of little-endian values. `dimensions` (Voyage and Cohere: `output_dimension`) cuts the vectors, and
scales them to their lengths before; a header warns if the model was not trained for it (`Servable.dimensions`).
`output_dtype` is Voyage's; `encoding_format` may name its types, too. No range is learned: of D dimensions

- `int8` has the vector of length 1 times 127 sqrt(D) / 5, rounded, at most 127 in size; `uint8` adds 128.
- `ubinary` has D / 8 bytes, a bit a dimension, the first the highest, 1 above 0; `binary` subtracts 128.

`POST /v2/embed` is Cohere's: `texts`, `embedding_types`. Errors have a field for each of these clients.
"""

import base64
import uuid
from collections.abc import Container, Mapping
from typing import Any, TypeGuard

import numpy as np
from starlette.responses import JSONResponse

from serving import errors
from serving.api import json_tensors
from serving.models.manager import Target

SIGNATURE = "embed"
OUTPUTS = ("embedding", "num_tokens")
WARNING_HEADER = "X-Dimensions-Warning"
_TYPES = ("float", "int8", "uint8", "binary", "ubinary")
_BASE64 = "base64"
# The largest value of int8 is so many times the root mean square of a vector's values; MiniLM's reach 5.1 times.
_INT8_RANGE = 5.0


def parse_request(body: bytes, is_cohere: bool) -> tuple[Target, dict[str, Any]]:
    """The model, and the request with its texts as a signature's inputs; INVALID_ARGUMENT names a wrong field."""
    request = {name: value for name, value in json_tensors.parse_object(body).items() if value is not None}
    field = "texts" if is_cohere else "input"
    model, texts = request.get("model"), request.get(field)
    if not isinstance(model, str) or not model:
        raise errors.invalid("model must be the name of a served model; GET /v1/models lists them")
    texts = [texts] if isinstance(texts, str) else texts
    if not is_texts(texts):
        raise errors.invalid(
            f"{field} must be a text or a list of at least one text; token ids are not taken, as clients send those of"
            " other vocabularies (LangChain: check_embedding_ctx_length=False)"
        )
    if (is_cohere and request.get("truncate", "END") != "END") or request.get("truncation", True) is not True:
        raise errors.invalid("long texts are cut: truncate (Cohere) must be END, truncation (Voyage) true")
    types = request.get("embedding_types", ["float"]) if is_cohere else [request.get("encoding_format", "float")]
    dtype = request.get("output_dtype", "float")
    for name, values, known in (
        ("embedding_types" if is_cohere else "encoding_format", types, (*_TYPES, _BASE64)),
        ("output_dtype", [dtype], _TYPES),
    ):
        if not isinstance(values, list) or not all(value in known for value in values):
            raise errors.invalid(f"{name} must be one of {', '.join(known)}")
    parsed = {
        "model": model,
        # For each type whether it is base64, and what is encoded.
        "types": {name: (name == _BASE64, dtype if name in ("float", _BASE64) else name) for name in types},
        "dimensions": request.get("dimensions", request.get("output_dimension")),
        "is_cohere": is_cohere,
        json_tensors.COLUMNS: texts,
    }
    return Target(model), parsed


def is_texts(value: Any) -> TypeGuard[list[str]]:
    """Return whether a JSON value is a list of texts, at least one."""
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def check(model: str, signatures: Container[str]) -> None:
    """Refuse a model without vectors; INVALID_ARGUMENT says how it gets them."""
    if SIGNATURE not in signatures:
        raise errors.invalid(
            f"{model} has no vectors of texts: push one of `bert-tfx finetune sentence-similarity`, or add them with "
            "`bert-tfx convert MODEL NEW_VERSION --from bert-tfx --to bert-tfx --pooling mean`"
        )


def headers(request: Mapping[str, Any], outputs: Mapping[str, np.ndarray], trained: Container[int]) -> dict[str, str]:
    """A warning unless the model was `trained` for vectors of the wanted dimensions."""
    wanted = request["dimensions"]
    if wanted in (None, outputs["embedding"].shape[1]) or wanted in trained:
        return {}
    return {WARNING_HEADER: f"the model was not trained for vectors of {wanted} dimensions"}


def answer(request: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> bytes:
    """JSON answer to `request` from the signature's outputs; INVALID_ARGUMENT for dimensions that they lack."""
    vectors, wanted = outputs["embedding"].astype("<f4", copy=False), request["dimensions"]
    if wanted is not None:
        if type(wanted) is not int or not 0 < wanted <= vectors.shape[1]:
            raise errors.invalid(f"dimensions is {json_tensors.show(wanted)}; it must be from 1 to {vectors.shape[1]}")
        vectors = _scaled(vectors[:, :wanted], np.linalg.norm(vectors, axis=1, keepdims=True))
    by_type = {name: _encoded(vectors, *how) for name, how in request["types"].items()}
    tokens, texts = int(outputs["num_tokens"].sum()), request[json_tensors.COLUMNS]
    if request["is_cohere"]:
        meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}}
        return json_tensors.dumps({"id": str(uuid.uuid4()), "embeddings": by_type, "texts": texts, "meta": meta})
    (encoded,) = by_type.values()
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(encoded)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_tensors.dumps({"object": "list", "data": data, "model": request["model"], "usage": usage})


def _scaled(vectors: np.ndarray, length: Any) -> np.ndarray:
    """The vectors, scaled to `length`; a vector of zeros remains."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors * (length / np.where(lengths == 0, 1, lengths))


def _encoded(vectors: np.ndarray, as_base64: bool, kind: str) -> list[Any]:
    dimensions = vectors.shape[1]
    if kind.endswith("int8"):
        whole = np.rint(_scaled(vectors, 127 * dimensions**0.5 / _INT8_RANGE)).clip(-127, 127)
        vectors = (whole + 128).astype(np.uint8) if kind == "uint8" else whole.astype(np.int8)
    elif kind != "float":
        if dimensions % 8:
            raise errors.invalid(f"{kind} is for a multiple of 8 dimensions; the vectors have {dimensions}")
        bits = np.packbits(vectors > 0, axis=1)
        vectors = (bits.astype(np.int16) - 128).astype(np.int8) if kind == "binary" else bits
    if as_base64:
        return [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
    return [json_tensors.serializable("embedding", vector) for vector in vectors]


def error(status: int, message: str) -> JSONResponse:
    """An error as the clients of OpenAI (`error`), Voyage (`detail`) and Cohere (`message`) read it."""
    kind = "invalid_request_error" if status < 429 else "rate_limit_error" if status == 429 else "server_error"
    described = {"message": message, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": described, "detail": message, "message": message}, status_code=status)
