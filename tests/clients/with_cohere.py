"""Cohere's clients of both versions: rerank, and vectors of the second."""

import os

import cohere
import numpy as np
import pytest

DOCUMENTS = ["the cat sat", "a dog", "a hat and a cat"]
KEYS = {"api_key": "none", "base_url": os.environ["REST"]}


@pytest.mark.parametrize("kind", [cohere.Client, cohere.ClientV2])
def test_rerank(kind):
    client = kind(**KEYS)
    answer = client.rerank(model="pairs", query="a cat", documents=DOCUMENTS)
    scores = [result.relevance_score for result in answer.results]
    assert sorted(result.index for result in answer.results) == [0, 1, 2] and answer.id
    assert scores == sorted(scores, reverse=True) and 0 < scores[2] < scores[0] < 1
    (best,) = client.rerank(model="pairs", query="a cat", documents=DOCUMENTS, top_n=1).results
    assert best == answer.results[0]


def test_documents_are_objects_and_come_back():
    documents = [{"text": text} for text in DOCUMENTS]
    answer = cohere.Client(**KEYS).rerank(model="pairs", query="a cat", documents=documents, return_documents=True)
    assert all(result.document.text == DOCUMENTS[result.index] for result in answer.results)


def test_embed():
    types = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    options = {"model": "bert", "texts": DOCUMENTS, "input_type": "search_document"}
    by_type = cohere.ClientV2(**KEYS).embed(**options, embedding_types=types).embeddings
    assert [np.shape(values) for values in (by_type.float_, by_type.int8, by_type.ubinary)] == [
        (3, 32),
        (3, 32),
        (3, 4),
    ]
    np.testing.assert_array_equal(np.unpackbits(np.uint8(by_type.ubinary), axis=1), np.array(by_type.float_) > 0)
    short = cohere.ClientV2(**KEYS).embed(**options, embedding_types=["float"], output_dimension=8)
    assert np.shape(short.embeddings.float_) == (3, 8)


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [("bert", cohere.BadRequestError, "bert cannot rerank: push"), ("none", cohere.NotFoundError, "none")],
)
def test_errors_have_the_servers_message(model, error, says):
    with pytest.raises(error) as raised:
        cohere.ClientV2(**KEYS).rerank(model=model, query="a", documents=["b"])
    assert says in raised.value.body["message"]
