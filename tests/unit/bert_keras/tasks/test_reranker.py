"""A reranker learns an order, answers /rerank with its numbers, and is a cross-encoder for other programs."""

import dataclasses
from unittest import mock

import httpx
import numpy as np
import pytest

from bert_keras.convert.formats import export, read_folder
from bert_keras.convert.huggingface.fine_tuned import as_task
from bert_keras.convert.model_folder import ModelFolder
from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import continues, init_checkpoint
from bert_keras.finetuning.training import TrainedTask, fine_tune
from bert_keras.models.config import BertConfig
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from serving.server import Server
from tests.support.models.pushed_folders import only_served

LETTERS = "abcdefghij"
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *LETTERS], True)
CONFIG = BertConfig(len(TOKENIZER.vocabulary), 32, 1, 2, 64, max_position_embeddings=16, initializer_range=0.2)
RERANK, SETTINGS = task_of("rerank"), TaskSettings(max_seq_length=16, activation="sigmoid")


def rows(queries, seed):
    """Four passages of each query; the relevant one has an `a`."""
    rng = np.random.default_rng(seed)
    given = []
    for query in range(queries):
        text = " ".join(rng.choice(list("cdefghij"), 4))
        for number in range(4):
            words = rng.permutation(["a" if number == 2 else "b", *rng.choice(list("cdefghij"), 3)])
            inputs = {"text": text, "text_pair": " ".join(words)}
            given.append(TaskRow(f"{query}-{number}", inputs, [text, int(number == 2)]))
    return given


def train(directory, list_size=0):
    settings = dataclasses.replace(SETTINGS, list_size=list_size)
    config = FineTuningConfig(num_train_epochs=6, train_batch_size=16, learning_rate=3e-3, eval_batch_size=16)
    init = init_checkpoint(CONFIG, TOKENIZER)
    model = fine_tune(RERANK, settings, config, init, rows(60, 1), rows(10, 2), str(directory))
    return TrainedTask(model, RERANK, settings, TOKENIZER)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("run"))


def held_out_scores(trained):
    held_out = rows(30, 3)
    return score(RERANK, [row.gold for row in held_out], trained.answers(held_out, 16))


def test_an_order_is_learned(trained):
    assert min(held_out_scores(trained).values()) > 0.95  # a random order has an MRR of 0.52
    assert trained.golds(rows(3, 3), 16) == [row.gold for row in rows(3, 3)]


def test_an_order_is_learned_from_lists(tmp_path):
    assert min(held_out_scores(train(tmp_path, list_size=4)).values()) > 0.95
    with pytest.raises(InputError, match=r"a teacher answers passages alone, and task\.list_size"):
        settings = dataclasses.replace(SETTINGS, list_size=4)
        given = settings, FineTuningConfig(), init_checkpoint(CONFIG, TOKENIZER), rows(2, 1), rows(2, 2), str(tmp_path)
        fine_tune(RERANK, *given, teacher=mock.Mock())


def test_the_server_reranks_with_the_same_numbers(trained, tmp_path):
    with only_served("serving_default"):
        export_task_model(trained.model, RERANK, SETTINGS, TOKENIZER, str(tmp_path / "1"))
    passages = rows(1, 4)
    query, documents = passages[0].inputs["text"], [row.inputs["text_pair"] for row in passages]
    with Server(tmp_path, grpc_port=0, rest_port=0) as server:
        assert server.wait_until_available(120)
        body = {"query": query, "texts": documents, "raw_scores": True}
        answer = httpx.post(f"http://127.0.0.1:{server.rest_port}/rerank", json=body, trust_env=False).json()
    numbers = {place["index"]: place["score"] for place in answer}
    np.testing.assert_allclose([numbers[n] for n in range(4)], trained.answers(passages, 16), atol=1e-5)
    assert answer[0]["index"] == 2


def test_it_is_written_and_read_as_a_cross_encoder(trained, tmp_path):
    """A cross-encoder is a number for pairs, whose head a reranker trains on."""
    export(ModelFolder.in_memory(trained.model, TOKENIZER, task=RERANK, settings=SETTINGS), str(tmp_path), "hf")
    cross = read_folder(str(tmp_path))
    assert (cross.task.name, cross.settings.activation) == ("text-pair-score", "sigmoid")
    assert continues(cross, RERANK) and as_task(cross, "rerank").task == RERANK
    assert not continues(cross, task_of("text-pair"))
