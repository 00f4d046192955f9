"""OpenAI's `POST /v1/embeddings` over the signature `embed`: https://platform.openai.com/docs/api-reference/embeddings.

    {"model": "bert", "input": "a text" or ["texts"], "encoding_format": "float", "base64" or null}
    -> {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [...]}], "model": "bert",
        "usage": {"prompt_tokens": 4, "total_tokens": 4}}

`base64` is that of little-endian float32. Errors are objects, as OpenAI's clients read them.
"""

import base64
from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from starlette.responses import JSONResponse

from serving import errors
from serving.api import json_tensors
from serving.models.manager import Target

SIGNATURE = "embed"
OUTPUTS = ("embedding", "num_tokens")
_FORMATS = ("float", "base64")


def parse_request(body: bytes) -> tuple[Target, dict[str, Any]]:
    """The model, and the request with its texts as a signature's inputs; INVALID_ARGUMENT names a wrong field."""
    request = json_tensors.parse_object(body)
    model, texts = request.get("model"), request.get("input")
    if not isinstance(model, str) or not model:
        raise errors.invalid("model must be the name of a served model; GET /v1/models lists them")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        # Ids of tokens would be those of OpenAI's vocabularies.
        raise errors.invalid("input must be a text or a list of at least one text; token ids are not taken")
    if request.get("encoding_format") not in (None, *_FORMATS):
        raise errors.invalid(f"encoding_format must be one of {', '.join(_FORMATS)}")
    kept = {name: request.get(name) for name in ("model", "encoding_format", "dimensions")}
    return Target(model), kept | {json_tensors.COLUMNS: texts}


def check(model: str, signatures: Container[str]) -> None:
    """Refuse a model without vectors; INVALID_ARGUMENT says how it gets them."""
    if SIGNATURE not in signatures:
        raise errors.invalid(
            f"{model} has no vectors of texts: push one of `bert-tfx finetune sentence-similarity`, or add them with "
            "`bert-tfx convert MODEL NEW_VERSION --from bert-tfx --to bert-tfx --pooling mean`"
        )


def answer(request: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> bytes:
    """JSON answer to `request` from the signature's outputs; INVALID_ARGUMENT for other `dimensions` than theirs."""
    vectors, tokens = outputs["embedding"].astype("<f4", copy=False), int(outputs["num_tokens"].sum())
    wanted = request.get("dimensions")
    if wanted is not None and wanted != vectors.shape[1]:
        raise errors.invalid(f"dimensions is {json_tensors.show(wanted)}; the model's vectors have {vectors.shape[1]}")
    if request.get("encoding_format") == "base64":
        encoded: list[Any] = [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
    else:
        encoded = [json_tensors.serializable("embedding", vector) for vector in vectors]
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(encoded)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_tensors.dumps({"object": "list", "data": data, "model": request["model"], "usage": usage})


def error(status: int, message: str) -> JSONResponse:
    """An error as OpenAI's clients read it."""
    kind = "invalid_request_error" if status < 429 else "rate_limit_error" if status == 429 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": None}}, status_code=status)
