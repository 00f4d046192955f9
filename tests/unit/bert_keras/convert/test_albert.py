"""Hugging Face's ALBERT in its released shapes, its vocabulary, and what is refused."""

import json
import zlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizer's op)
from safetensors.numpy import load_file, save_file

from bert_keras.convert.architecture import Architecture
from bert_keras.convert.bert_tfx import read_tokenizer
from bert_keras.convert.initial_weights import initial_folder
from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import read_init
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from tests.support.models.model_folders import (
    read_any,
    read_huggingface,
    read_pushed,
    write_huggingface,
    write_keras_hub,
    write_pushed,
    write_tf1,
)
from tests.support.models.tiny_sentencepiece import tiny_sentencepiece, trained
from tests.support.models.variants_of_transformers import GOLDEN

# config.json of albert/albert-base-v2; what it leaves out is AlbertConfig's.
BASE = {
    "model_type": "albert",
    "architectures": ["AlbertForMaskedLM"],
    "attention_probs_dropout_prob": 0,
    "classifier_dropout_prob": 0.1,
    "embedding_size": 128,
    "gap_size": 0,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0,
    "hidden_size": 768,
    "inner_group_num": 1,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "net_structure_type": 0,
    "num_attention_heads": 12,
    "num_hidden_groups": 1,
    "num_hidden_layers": 12,
    "num_memory_blocks": 0,
    "type_vocab_size": 2,
    "vocab_size": 30000,
}
LARGE = {**BASE, "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24}
SMALL = BertConfig(
    vocab_size=len(tiny_sentencepiece().vocabulary),
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=24,
    embedding_width=8,
    shared_layers=True,
)
TEXT = "The cat [MASK] on the mat"


def drawn(name, shape):
    """The same numbers as golden_transformers_variants/make.py, `drawn`."""
    around = 1.0 if name.lower().endswith("norm.weight") else 0.0
    return (around + np.random.RandomState(zlib.crc32(name.encode())).normal(0, 0.02, shape)).astype("float32")


def small(kind=BertForPreTraining, config=SMALL):
    model, rng = kind(config), np.random.default_rng(0)
    model.build()
    model.set_weights([rng.normal(0, 0.2, weight.shape) for weight in model.get_weights()])
    return model


@pytest.mark.parametrize(("name", "fields"), [("base", BASE), pytest.param("large", LARGE, marks=pytest.mark.slow)])
def test_the_released_shape_computes_what_transformers_does(tmp_path, name, fields):
    golden = np.load(GOLDEN / f"albert_{name}.npz")
    shape = BertConfig.size(
        fields["num_hidden_layers"], fields["hidden_size"], vocab_size=30000, embedding_width=128, shared_layers=True
    )
    weights = Architecture("albert", shape, 128).weights()
    tensors = {w.huggingface.name: drawn(w.huggingface.name, w.stored_shape("huggingface")) for w in weights}
    assert sum(tensor.size for tensor in tensors.values()) == golden["parameters"][0]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(fields))
    read = read_huggingface(str(tmp_path))
    assert (read.family, read.untrained, read.remarks) == ("albert", (), ())
    inputs = {name: golden[f"inputs/{name}"] for name in ("input_ids", "input_mask", "segment_ids")}
    real = inputs["input_mask"] == 1
    ours = read.model(inputs)
    for found, expected in (
        (ours["sequence_output"][real], golden["outputs/last_layer"][real]),
        (ours["mlm_logits"][real][:, :500], golden["outputs/logits"][real]),
        (ours["nsp_logits"], golden["outputs/order"]),
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    write_huggingface(read.model, None, str(tmp_path / "again"))
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == tensors.keys() and all(np.array_equal(again[name], tensors[name]) for name in tensors)
    stored = json.loads((tmp_path / "again" / "config.json").read_text())
    names = ("hidden_act", "embedding_size", "num_hidden_groups", "inner_group_num", "model_type", "vocab_size")
    assert {name: stored[name] for name in names} == {name: fields[name] for name in names}
    assert stored["architectures"] == ["AlbertForPreTraining"] and "shared_layers" not in stored


@pytest.mark.parametrize(
    ("kind", "name", "signatures"),
    [
        (BertForPreTraining, "AlbertForPreTraining", {"fill_mask", "next_sentence", "evaluate"}),
        pytest.param(RobertaForMaskedLM, "AlbertForMaskedLM", {"fill_mask", "evaluate"}, marks=pytest.mark.slow),
        pytest.param(BertBackbone, "AlbertModel", set(), marks=pytest.mark.slow),
    ],
)
def test_a_folder_goes_round_with_its_vocabulary(tmp_path, kind, name, signatures):
    model, tokenizer = small(kind), tiny_sentencepiece()
    folders = [str(tmp_path / step) for step in ("hf", "pushed", "hf again")]
    write_huggingface(model, tokenizer, folders[0])
    # As released: the model that was trained, without its rules for case and accents.
    (tmp_path / "hf" / "spiece.model").write_bytes(trained())
    (tmp_path / "hf" / "tokenizer.json").unlink()
    (tmp_path / "hf" / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == [name]
    read = read_any(folders[0])
    assert type(read.model) is kind and (read.family, read.untrained, read.remarks) == ("albert", (), ())
    assert read.tokenizer.model == tokenizer.model

    write_pushed(read.model, tokenizer, folders[1], read.family)
    served = tf.saved_model.load(folders[1])
    assert set(served.signatures) == {"serving_default", "encode", "encode_pair", *signatures}
    if "fill_mask" in signatures:
        answer = served.signatures["fill_mask"](text=tf.constant([TEXT]))
        assert set(answer["tokens"].numpy()[0, 0]) <= {token.encode() for token in tokenizer.token_texts}
    start = read_init(folders[1])
    assert (start.family, start.config, start.architecture.embedding_size) == ("albert", SMALL, 8)
    assert start.tokenizer.model == tokenizer.model == read_tokenizer(folders[1]).model

    back = read_pushed(folders[1])
    write_huggingface(back.model, tokenizer, folders[2])
    theirs, ours = (load_file(f"{folder}/model.safetensors") for folder in (folders[2], folders[0]))
    assert ours.keys() <= theirs.keys() and all(np.array_equal(theirs[key], ours[key]) for key in ours)
    # Only `tokenizer.json`, as transformers 5 writes.
    (tmp_path / "hf again" / "spiece.model").unlink()
    again = read_huggingface(folders[2])
    assert again.tokenizer.vocabulary == tokenizer.vocabulary


def test_a_missing_field_is_albertconfigs(tmp_path):
    save_file({}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "albert", "hidden_size": 64, "num_attention_heads": 1})
    )
    with pytest.raises(InputError, match=r"albert.embeddings.word_embeddings.weight \[30000, 128\] .* is missing"):
        read_huggingface(str(tmp_path))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"num_hidden_groups": 2}, "num_hidden_groups is 2; supported: 1"),
        ({"inner_group_num": 2}, "inner_group_num is 2; supported: 1"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
    ],
)
def test_other_alberts_are_refused(tmp_path, fields, says):
    (tmp_path / "config.json").write_text(json.dumps({**BASE, **fields}))
    with pytest.raises(InputError, match=f"config.json: {says}"):
        read_huggingface(str(tmp_path))


def test_what_other_formats_cannot_hold_is_refused(tmp_path):
    model, tokenizer = small(), tiny_sentencepiece()
    with pytest.raises(InputError, match=r"embedding_width is 8; .* cannot hold such an encoder"):
        write_tf1(model, tokenizer, str(tmp_path / "tf1"))
    with pytest.raises(InputError, match="embedding_width is 8; keras-hub's presets cannot hold"):
        write_keras_hub(model, tokenizer, str(tmp_path / "hub"))
    wide = small(config=BertConfig(**{**vars(SMALL), "embedding_width": 0}))
    with pytest.raises(InputError, match=r"always projects its embeddings, but model.embedding_width is"):
        write_huggingface(wide, tokenizer, str(tmp_path / "hf"))
    rotary = small(config=BertConfig(**{**vars(SMALL), "position_embedding": "rotary"}))
    with pytest.raises(InputError, match="position_embedding is 'rotary'; Hugging Face's ALBERT cannot hold"):
        write_huggingface(rotary, tokenizer, str(tmp_path / "hf"))
    write_huggingface(model, tokenizer, str(tmp_path / "right"))
    assert initial_folder(str(tmp_path / "right"))[1].model == tokenizer.model
