"""Hugging Face's folders of a BERT: all forms, and errors. Round trips: test_written_folders.py."""

import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import (
    assert_equal,
    change_config,
    change_tensors,
    put,
    read_huggingface,
    without,
    write_huggingface,
)

TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "a", "cat", "##s", "é"], lower_case=False)
CONFIG = BertConfig(
    9, 8, 2, 2, 24, max_position_embeddings=6, type_vocab_size=3, layer_norm_eps=1e-7, hidden_act="gelu_erf"
)


@pytest.fixture(scope="module")
def model(random_bert):
    return random_bert(CONFIG, BertForPreTraining)


@pytest.fixture(scope="module")
def written(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("written")
    write_huggingface(model, TOKENIZER, str(directory))
    return directory


@pytest.fixture
def directory(written, tmp_path):
    """A copy that a test may modify."""
    return shutil.copytree(written, tmp_path / "copy")


def test_the_written_configuration(written):
    config = json.loads((written / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("bert", ["BertForPreTraining"])
    assert (config["hidden_act"], config["layer_norm_eps"], config["pad_token_id"]) == ("gelu", 1e-7, 0)


FORMS = {
    "gamma and beta": lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
        "LayerNorm.bias", "LayerNorm.beta"
    ),
    "the bias under its tied name": lambda name: name.replace("cls.predictions.bias", "cls.predictions.decoder.bias"),
    "the embeddings under their tied name": lambda name: name.replace(
        "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_names_are_read_in_every_form(model, directory, form):
    before = set(load_file(directory / "model.safetensors"))
    change_tensors(directory, lambda tensors: {FORMS[form](name): value for name, value in tensors.items()})
    assert set(load_file(directory / "model.safetensors")) != before
    read = read_huggingface(str(directory))
    assert_equal(read.model, model)
    assert read.untrained == ()


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_half_precision_is_read_exactly(directory, dtype):
    change_tensors(directory, lambda tensors: {name: value.astype(dtype) for name, value in tensors.items()})
    stored = load_file(directory / "model.safetensors")["cls.seq_relationship.weight"]
    kernel = read_huggingface(str(directory)).model.nsp_head.kernel
    assert kernel.dtype == "float32"
    np.testing.assert_array_equal(kernel, stored.astype("float32").T)


def shard(directory):
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(sorted(tensors))}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in tensors if files[name] == file}, directory / file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return files


def test_shards_are_read(model, directory):
    shard(directory)
    assert_equal(read_huggingface(str(directory)).model, model)


@pytest.mark.parametrize(
    ("missing", "model_class", "untrained"),
    [
        (("cls.",), BertBackbone, ()),
        (("cls.", "bert.pooler."), BertBackbone, ("pooler",)),
        (("cls.seq_relationship.",), BertForPreTraining, ("next-sentence head",)),
        (("cls.predictions.", "bert.pooler."), BertForPreTraining, ("pooler", "masked-LM head")),
    ],
)
def test_missing_parts_are_initialised_and_reported(model, directory, missing, model_class, untrained):
    change_tensors(directory, without(*missing))
    read = read_huggingface(str(directory))
    assert type(read.model) is model_class and read.untrained == untrained
    paths = {"pooler": "bert/pooler", "masked-LM head": "predictions", "next-sentence head": "seq_relationship"}
    expected = model if model_class is BertForPreTraining else model.backbone
    assert_equal(read.model, expected, but=[paths[part] for part in untrained])
    if "pooler" in untrained:
        kernel = np.asarray(variables_by_path(read.model)["bert/pooler/kernel"])
        assert 0 < np.abs(kernel).max() <= 2 * CONFIG.initializer_range  # drawn, not zeros


QUERY = "bert.encoder.layer.0.attention.self.query.weight"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without(QUERY), [f"{QUERY} [8, 8] of the encoder is missing", "model.safetensors"]),
        (without("bert.pooler.dense.bias"), ["bert.pooler.dense.bias [8] of the pooler is missing"]),
        (without("cls.predictions.bias"), ["cls.predictions.bias [9] of the masked-LM head is missing"]),
        (put(QUERY, np.zeros((8, 7), "float32")), [f"{QUERY} [8, 7] must be [8, 8]", "model.safetensors"]),
        (put("bert.other.weight", np.zeros((3, 8), "float32")), ["bert.other.weight [3, 8]", "model.safetensors"]),
        (put(QUERY, np.full((8, 8), np.inf, "float32")), [f"{QUERY} [8, 8] has 64 numbers that are NaN or infinite"]),
        (put(QUERY, np.where(np.eye(8), np.nan, 0).astype("f")), [f"{QUERY} [8, 8] has 8 numbers that are NaN"]),
        (put("bert.encoder.layer.2.output.dense.bias", np.zeros(8, "float32")), ["layer.2.output.dense.bias [8]"]),
        (put(QUERY, np.zeros((8, 8), "int8")), [f"{QUERY} [8, 8] is int8", "float32, float16, bfloat16"]),
        (put(QUERY.removeprefix("bert."), np.zeros((8, 8), "float32")), [f"{QUERY} [8, 8]", "the same weight"]),
        (put("cls.predictions.decoder.bias", np.zeros(8, "float32")), ["decoder.bias [8] is not equal to", "[9]"]),
    ],
)
def test_wrong_tensors_are_refused_by_name(directory, change, says):
    change_tensors(directory, change)
    with pytest.raises(InputError) as error:
        read_huggingface(str(directory))
    assert all(words in str(error.value) for words in says), error.value


def test_without_vocab_txt_tokenizer_json_is_read(directory):
    (directory / "vocab.txt").unlink()
    ids = {token: i for i, token in reversed([*enumerate(TOKENIZER.vocabulary)])}
    fast = directory / "tokenizer.json"
    fast.write_text(json.dumps({"model": {"type": "WordPiece", "vocab": ids}}))
    assert read_huggingface(str(directory)).tokenizer.vocabulary == TOKENIZER.vocabulary
    fast.write_text(json.dumps({"model": {"type": "WordPiece", "vocab": {"[PAD]": 0}}}))
    refused(directory, "tokenizer.json has 1 tokens, but the word embeddings have 9 rows")
    fast.write_text(json.dumps({"model": {"type": "BPE", "vocab": {}}}))
    refused(directory, "tokenizer.json is a BPE tokenizer")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; supported: 'bert', 'roberta', 'electra', 'modernbert'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; it must be one of gelu, gelu_new, gelu_pytorch_tanh"),
        ({"num_attention_heads": 3}, "hidden_size is 8, not a multiple of"),
        ({"hidden_size": "8"}, "config.json: "),
    ],
)
def test_other_model_types_are_refused(directory, fields, says):
    change_config(directory, **fields)
    with pytest.raises(InputError, match=says):
        read_huggingface(str(directory))


@pytest.mark.parametrize(
    ("stored", "ours"), [("gelu", "gelu_erf"), ("gelu_new", "gelu_tanh"), ("gelu_pytorch_tanh", "gelu_tanh")]
)
def test_names_of_gelu(directory, stored, ours):
    change_config(directory, hidden_act=stored)
    assert read_huggingface(str(directory)).model.config.hidden_act == ours


def test_a_pickle_beside_safetensors_is_ignored(model, directory):
    (directory / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    assert_equal(read_huggingface(str(directory)).model, model)


def refused(directory, says):
    with pytest.raises(InputError, match=says):
        read_huggingface(str(directory))


def test_damaged_and_missing_files_are_named(directory):
    weights = directory / "model.safetensors"
    for content in (b"", b"no tensors at all", weights.read_bytes()[:-1]):
        weights.write_bytes(content)
        refused(directory, "model.safetensors is damaged or not a safetensors file")
    weights.unlink()
    refused(directory, "has none of model.safetensors, pytorch_model.bin, tf_model.h5")
    (directory / "config.json").write_text("{")
    refused(directory, "config.json is not JSON")
    (directory / "config.json").unlink()
    refused(directory, "config.json is missing")


@pytest.mark.parametrize("name", ["config.json", "vocab.txt"])
def test_files_that_are_not_text_are_named(directory, name):
    (directory / name).write_bytes(b"\xff\xfe")
    refused(directory, f"{name} is not UTF-8")


def test_wrong_shards_are_named(directory):
    files = shard(directory)
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {**files, "bert.more": files[QUERY]}}))
    refused(directory, rf"lists the tensor bert.more in {files[QUERY]}, which lacks it")
    index.write_text(json.dumps({"weight_map": {**files, QUERY: "../secret.safetensors"}}))
    refused(directory, "shards must be in the same folder")
    index.write_text(json.dumps({"weight_map": files}))
    (directory / files[QUERY]).unlink()
    refused(directory, rf"{files[QUERY]} is missing, but .* names it")
