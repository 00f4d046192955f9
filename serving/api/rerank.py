"""`POST /v1/rerank`, `/v2/rerank` and `/rerank`: texts by their relevance for a query, the best first.

    {"model": "ms-marco", "query": "a text", "documents": ["texts" or {"text": "..."}], "top_n": 3,
     "return_documents": true}
    -> {"id": "...", "model": "ms-marco", "meta": {...}, "usage": {"total_tokens": 40},
        "results": [{"index": 1, "relevance_score": 0.9, "document": {"text": "..."}}]}        (Cohere, Jina)
    {"query": "a text", "texts": ["texts"], "raw_scores": false, "return_text": true}
    -> [{"index": 1, "score": 0.9, "text": "..."}]                           (text-embeddings-inference)

`serving_default` of a pair model with one number answers, such as a cross-encoder's. A score is the sigmoid of the
number, with `raw_scores` the number. Without `model` the only served one that can is asked. `usage` is an upper bound,
the bytes: the server has no tokenizer.
"""

import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.responses import JSONResponse

from serving import errors
from serving.api import json_tensors
from serving.api.embeddings import is_texts
from serving.middleware.limits import check_examples, check_rows
from serving.middleware.settings import LimitSettings
from serving.models.manager import ModelManager, Target
from serving.models.servable import DEFAULT_SIGNATURE
from serving.protos import SignatureDef

OUTPUTS = ("score",)
_FIELDS = {"documents": ("documents", "return_documents"), "texts": ("texts", "return_text")}


def parse_request(body: bytes, limits: LimitSettings) -> dict[str, Any]:
    """The request, with its pairs as a signature's inputs; INVALID_ARGUMENT names a wrong field."""
    request = json_tensors.parse_object(body)
    field, returns = _FIELDS["texts" if "texts" in request else "documents"]
    query, texts = request.get("query"), request.get(field)
    if not isinstance(query, str):
        raise errors.invalid("query must be a text")
    if isinstance(texts, list):
        texts = [text.get("text") if isinstance(text, dict) else text for text in texts]
    if not is_texts(texts):
        raise errors.invalid(f'{field} must be a list of at least one text, or of objects {{"text": "..."}}')
    for name, expected, taken in (
        ("model", "the name of a served model", lambda value: isinstance(value, str)),
        ("top_n", "a whole number, at least 1", lambda value: type(value) is int and value > 0),
        *((name, "true or false", lambda value: isinstance(value, bool)) for name in (returns, "raw_scores")),
        # What would change the scores, and is not done.
        ("rank_fields", '["text"]: join other fields in it', lambda value: value == ["text"]),
        ("truncation", "true: long texts are cut", lambda value: value is True),
        ("truncation_direction", '"right"', lambda value: str(value).lower() == "right"),
    ):
        if request.get(name) is not None and not taken(request[name]):
            raise errors.invalid(f"{name} is {json_tensors.show(request[name])}; it must be {expected}")
    check_rows(field, [len(texts)], limits)
    context, *encoded = [json_tensors.to_bytes(text) for text in (query, *texts)]
    check_examples(len(context), [len(text) for text in encoded], limits)
    return {
        "model": request.get("model"),
        "bare": field == "texts",
        "top_n": request.get("top_n"),
        "returned": request.get(returns) and (texts if field == "texts" else [{"text": text} for text in texts]),
        "raw_scores": request.get("raw_scores"),
        "bytes": sum(len(context) + len(text) for text in encoded),
        json_tensors.COLUMNS: {"text": [query] * len(texts), "text_pair": texts},
    }


def target_of(request: Mapping[str, Any], models: ModelManager) -> Target:
    """The model that answers; NOT_FOUND, or INVALID_ARGUMENT if it, or not exactly one of those served, can rerank."""
    served = [name for name, store in models.stores.items() if store.newest is not None]
    names = [request["model"]] if request["model"] else served
    can = []
    for name in names:
        signature = models.get(Target(name)).signature_defs.get(DEFAULT_SIGNATURE, SignatureDef())
        if set(signature.inputs) == {"text", "text_pair"} and OUTPUTS[0] in signature.outputs:
            can.append(name)
    if len(can) > 1:
        raise errors.invalid(f"several models can rerank: {', '.join(can)}; name one in model")
    if not can:
        raise errors.invalid(
            f"{', '.join(names) or 'no model'} cannot rerank: push one of `bert-tfx finetune rerank`, or a"
            " cross-encoder with `bert-tfx convert FOLDER NEW_VERSION --from hf --to bert-tfx`"
        )
    return Target(can[0])


def answer(request: Mapping[str, Any], model: str, outputs: Mapping[str, np.ndarray]) -> bytes:
    """JSON answer to `request`, from the scores [B] of its pairs by `model`."""
    numbers, returned = outputs[OUTPUTS[0]], request["returned"]
    sigmoids = np.exp(-np.logaddexp(0, -numbers.astype(np.float64))).astype(np.float32)
    scores = numbers if request["raw_scores"] else sigmoids
    score, text = ("score", "text") if request["bare"] else ("relevance_score", "document")
    # By the numbers: the sigmoids of large ones are equal.
    best = np.argsort(-numbers, kind="stable")[: request["top_n"]].tolist()
    results = [
        {"index": index, score: json_tensors.serializable(score, scores[index])}
        | ({text: returned[index]} if returned else {})
        for index in best
    ]
    if request["bare"]:
        return json_tensors.dumps(results)
    facts = {"meta": {"api_version": {"version": "2"}}, "usage": {"total_tokens": request["bytes"]}}
    return json_tensors.dumps({"id": str(uuid.uuid4()), "model": model, "results": results, **facts})


def error(status: int, message: str) -> JSONResponse:
    """An error as clients of Cohere (`message`), text-embeddings-inference (`error`) and Jina (`detail`) read it."""
    return JSONResponse({"message": message, "error": message, "detail": message}, status_code=status)
