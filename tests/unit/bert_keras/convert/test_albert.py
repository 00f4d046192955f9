"""Hugging Face's ALBERT: its vocabulary as released, and what is refused. Its shapes: test_released_shapes.py."""

import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

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
from tests.support.models.pushed_folders import without_graph
from tests.support.models.tiny_sentencepiece import tiny_sentencepiece, trained

SMALL = BertConfig(
    *(len(tiny_sentencepiece().vocabulary), 16, 3, 2, 24),
    max_position_embeddings=24,
    embedding_width=8,
    shared_layers=True,
)


def small(kind=BertForPreTraining, config=SMALL):
    model, rng = kind(config), np.random.default_rng(0)
    model.build()
    model.set_weights([rng.normal(0, 0.2, weight.shape) for weight in model.get_weights()])
    return model


@pytest.mark.parametrize(
    ("kind", "name", "signatures"),
    [
        (BertForPreTraining, "AlbertForPreTraining", {"fill_mask", "next_sentence", "evaluate"}),
        (RobertaForMaskedLM, "AlbertForMaskedLM", {"fill_mask", "evaluate"}),
        (BertBackbone, "AlbertModel", set()),
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

    with without_graph() as pushed:
        write_pushed(read.model, tokenizer, folders[1], read.family)
    assert {*pushed[0]} == {"serving_default", "encode", "encode_pair", *signatures}
    if kind is BertForPreTraining:
        answer = pushed[0]["fill_mask"](tf.constant(["The cat [MASK] on the mat"]))
        assert {*answer["tokens"].numpy()[0, 0]} <= {token.encode() for token in tokenizer.token_texts}
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
    fields = {"model_type": "albert", "hidden_size": 64, "num_attention_heads": 1}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(InputError, match=r"albert.embeddings.word_embeddings.weight \[30000, 128\] .* is missing"):
        read_huggingface(str(tmp_path))


@pytest.mark.parametrize(
    "field", [{"num_hidden_groups": 2}, {"inner_group_num": 2}, {"position_embedding_type": "relative_key"}]
)
def test_other_alberts_are_refused(tmp_path, field):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "albert", **field}))
    ((name, value),) = field.items()
    with pytest.raises(InputError, match=f"config.json: {name} is {value!r}; supported"):
        read_huggingface(str(tmp_path))


def test_what_other_formats_cannot_hold_is_refused(tmp_path):
    model, tokenizer = small(), tiny_sentencepiece()
    for write in (write_tf1, write_keras_hub):
        with pytest.raises(InputError, match=r"embedding_width is 8; .* cannot hold such an encoder"):
            write(model, tokenizer, str(tmp_path / "new"))
    wide = small(config=BertConfig(**{**vars(SMALL), "embedding_width": 0}))
    with pytest.raises(InputError, match=r"always projects its embeddings, but model.embedding_width is"):
        write_huggingface(wide, tokenizer, str(tmp_path / "new"))
    rotary = small(config=BertConfig(**{**vars(SMALL), "position_embedding": "rotary"}))
    with pytest.raises(InputError, match="position_embedding is 'rotary'; Hugging Face's ALBERT cannot hold"):
        write_huggingface(rotary, tokenizer, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    write_huggingface(model, tokenizer, str(tmp_path / "right"))
    assert initial_folder(str(tmp_path / "right"))[1].model == tokenizer.model
