"""A checkpoint from every format and back: the same weights, the same tokenizer, the same answers."""

import dataclasses
import importlib.util
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_keras import BertForPreTraining, ModelFolder, export, from_checkpoint
from bert_keras.convert.formats import FORMATS, read_folder
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.pushed_folders import only_served, without_graph

TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "the", "cat", "sat", "##s", "."], True)
CONFIG = BertConfig(len(TOKENIZER.vocabulary), 16, 1, 2, 32, max_position_embeddings=12)
TEXTS = ["the cat", "the cat sat on the mat ."]


@pytest.fixture(scope="module")
def bert():
    model = BertForPreTraining(CONFIG, seed=4)
    model.build()
    return ModelFolder.in_memory(model, TOKENIZER)


@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_exported_is_read_again(bert, tmp_path, format_):
    if format_ == "keras-hub" and not importlib.util.find_spec("keras_hub"):
        pytest.skip("an extra")
    with only_served("encode"):
        export(dataclasses.replace(bert, max_seq_length=10), str(tmp_path), format_)
    found = from_checkpoint(str(tmp_path), cased=False)
    assert found.origin == (None if format_ == "bert-tfx" else {"format": format_, "name": tmp_path.name})
    assert found.max_seq_length == (10 if format_ in ("hf", "bert-tfx") else None)
    assert found.inputs(["the cat " * 20])["input_ids"].shape == (1, found.max_seq_length or 12)
    if format_ == "bert-tfx":
        encode = tf.saved_model.load(str(tmp_path)).signatures["encode"]
        assert encode(text=tf.constant(["the cat " * 20]))["tokens"].shape == (1, 10)
    assert found.tokenizer.vocabulary == TOKENIZER.vocabulary and found.task is None and found.untrained == ()
    expected = bert.model.predict(bert.inputs(TEXTS), verbose=0)
    outputs = found.model.predict(found.inputs(TEXTS), verbose=0)
    # Without positions, every token is predicted.
    assert expected["mlm_logits"].shape == (2, 9, CONFIG.vocab_size)
    # keras-hub's files hold no next-sentence head, and neither epsilon nor gelu.
    assert expected.keys() - outputs.keys() <= ({"mlm_logits", "nsp_logits"} if format_ == "keras-hub" else set())
    for name in outputs.keys() - {"encoder_outputs"}:
        np.testing.assert_allclose(outputs[name], expected[name], atol=1e-4, err_msg=name)


def test_inputs_of_texts_and_pairs(bert):
    single = bert.inputs(TEXTS)
    assert single["input_ids"].tolist()[0] == [2, 5, 6, 3, 0, 0, 0, 0, 0]
    assert single["input_mask"].sum(-1).tolist() == [4, 9]
    pair = bert.inputs(TEXTS[:1], ["the"])
    assert pair["input_ids"].tolist() == [[2, 5, 6, 3, 5, 3]] and pair["segment_ids"].tolist() == [[0, 0, 0, 0, 1, 1]]
    assert bert.inputs(["the cat " * 20])["input_ids"].shape == (1, CONFIG.max_position_embeddings)
    with pytest.raises(InputError, match="has no vocabulary"):
        dataclasses.replace(bert, make_tokenizer=lambda: None).inputs(TEXTS)


def test_a_fine_tuned_model_keeps_its_output_layer(tmp_path):
    task, settings = task_of("sst-2"), TaskSettings(max_seq_length=8)
    model = task_type_of(task).create_model(CONFIG, task, settings, 5)
    model.build()
    tuned = ModelFolder.in_memory(model, TOKENIZER, task=task, settings=settings)
    with pytest.raises(InputError, match="tf1 has no place for a model of sst-2; write it as bert-tfx or hf"):
        export(tuned, str(tmp_path), "tf1")
    with without_graph():
        export(tuned, str(tmp_path))
    found = from_checkpoint(str(tmp_path))
    assert (found.task, found.settings) == (task, settings) and found.inputs(TEXTS)["input_ids"].shape == (2, 8)
    logits = found.model.predict(found.inputs(TEXTS), verbose=0)
    np.testing.assert_allclose(logits, model.predict(tuned.inputs(TEXTS), verbose=0), atol=1e-5)
    # The family is recorded, not guessed, and weights are read when they are asked for.
    config = tmp_path / "bert_config.json"
    fields = json.loads(config.read_text())
    assert fields["family"] == "bert"
    config.write_text(json.dumps({**fields, "family": "gpt"}))
    with pytest.raises(InputError, match=r"bert_config.json: family is 'gpt'; it must be one of bert, roberta"):
        read_folder(str(tmp_path))
    config.write_text(json.dumps({**fields, "family": "electra"}))
    lazy = read_folder(str(tmp_path))
    assert lazy.family == "electra"
    (tmp_path / "model.weights.h5").unlink()
    assert (lazy.config, lazy.task, lazy.known_tokenizer().vocabulary) == (CONFIG, task, TOKENIZER.vocabulary)
    with pytest.raises(InputError, match=r"model.weights.h5: the weights do not fit"):
        _ = lazy.model


def test_an_unknown_format_is_named(bert, tmp_path):
    with pytest.raises(InputError, match="onnx: no such format; there are tf1, hf, keras-hub, bert-tfx"):
        export(bert, str(tmp_path), "onnx")
