"""litellm: vectors as of an OpenAI server, rerank in the forms of Cohere, Jina, vLLM and Hugging Face."""

import os

import litellm
import numpy as np
import pytest

REST = os.environ["REST"]
DOCUMENTS = ["the cat sat", "a dog", "a hat and a cat"]


def test_embedding():
    options = {"model": "openai/bert", "input": DOCUMENTS, "api_base": f"{REST}/v1", "api_key": "none"}
    for size, further in ((32, {}), (8, {"dimensions": 8, "allowed_openai_params": ["dimensions"]})):
        data = litellm.embedding(**options, **further).data
        assert np.shape([row["embedding"] for row in data]) == (3, size)


@pytest.mark.parametrize("provider", ["cohere", "jina_ai", "hosted_vllm", "huggingface"])
def test_rerank(provider):
    options = {"model": f"{provider}/pairs", "query": "a cat", "api_base": REST, "api_key": "none"}
    results = litellm.rerank(**options, documents=DOCUMENTS, return_documents=True).results
    scores = [result["relevance_score"] for result in results]
    assert sorted(result["index"] for result in results) == [0, 1, 2]
    assert scores == sorted(scores, reverse=True) and 0 < scores[2] < scores[0] < 1
    assert all(result["document"]["text"] == DOCUMENTS[result["index"]] for result in results)
    assert len(litellm.rerank(**options, documents=DOCUMENTS, top_n=2).results) == 2


def test_an_error_has_the_servers_message():
    with pytest.raises(Exception, match="bert cannot rerank: push"):
        litellm.rerank(model="cohere/bert", query="a", documents=["b"], api_base=REST, api_key="none", num_retries=0)
