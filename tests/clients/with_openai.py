"""openai's client: vectors, cut and encoded, models, and errors."""

import base64
import os

import numpy as np
import openai
import pytest

TEXTS = ["the cat", "a dog and a hat"]


@pytest.fixture(scope="module")
def client():
    with openai.OpenAI(base_url=f"{os.environ['REST']}/v1", api_key="none", max_retries=0) as client:
        yield client


def vectors(client, **options):
    answer = client.embeddings.create(model="bert", input=TEXTS, **options)
    assert answer.model == "bert" and answer.usage.total_tokens == answer.usage.prompt_tokens > 4
    return [row.embedding if isinstance(row.embedding, str) else np.float32(row.embedding) for row in answer.data]


def test_the_vectors_are_the_same_in_both_formats(client):
    floats = vectors(client, encoding_format="float")
    assert np.shape(floats) == (2, 32)
    np.testing.assert_array_equal(vectors(client), floats)  # asks for base64, and decodes it
    encoded = vectors(client, encoding_format="base64")
    np.testing.assert_array_equal(
        [np.frombuffer(base64.b64decode(text), "<f4") for text in encoded], np.float32(floats)
    )


def test_short_vectors_have_length_1_and_a_warning(client):
    whole, short = np.array(vectors(client)), np.array(vectors(client, dimensions=8))
    np.testing.assert_allclose(short, whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True), rtol=1e-5)
    raw = client.embeddings.with_raw_response.create(model="bert", input="a", dimensions=8)
    assert raw.headers["X-Dimensions-Warning"] == "the model was not trained for vectors of 8 dimensions"


def test_integers(client):
    bits = np.unpackbits(np.array(vectors(client, encoding_format="ubinary"), np.uint8), axis=1)
    np.testing.assert_array_equal(bits, np.array(vectors(client)) > 0)


def test_the_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["bert", "pairs"]


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"model": "none"}, openai.NotFoundError, "none"),
        ({"dimensions": 33}, openai.BadRequestError, "dimensions is 33; it must be from 1 to 32"),
        ({"input": [[1, 2]]}, openai.BadRequestError, "token ids are not taken"),
    ],
)
def test_errors_have_the_servers_message(client, options, error, says):
    with pytest.raises(error) as raised:
        client.embeddings.create(**{"model": "bert", "input": "a", **options})
    assert says in raised.value.body["message"]
