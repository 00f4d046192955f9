"""Pooling and normalisation of a sentence-transformers folder, read and written."""

import dataclasses
import json

import pytest

from bert_keras.convert.formats import export, read_folder
from bert_keras.convert.huggingface.sentence_transformers import read_embedding, write_embedding
from bert_keras.errors import InputError
from bert_keras.saved_model.settings import NO_EMBEDDING, EmbeddingSettings, embedding_fields
from tests.support.models.head_folders import golden, write_folder

PATHS = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize", "Dense": "2_Dense"}


def folder(tmp_path, kinds, pooling, settings=None):
    """As sentence-transformers writes it; `settings` of the encoder's length, None: no file."""
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": PATHS[kind]} for kind in kinds]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if settings is not None:
        (tmp_path / "sentence_bert_config.json").write_text(json.dumps(settings))
    return str(tmp_path)


MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


@pytest.mark.parametrize(
    ("kinds", "pooling", "settings", "expected"),
    [
        (["Transformer", "Pooling", "Normalize"], MEAN, {"max_seq_length": 256}, ("mean", True, 256)),
        (["Transformer", "Pooling"], CLS, None, ("cls", False, 0)),
        (["Transformer", "Pooling"], {"pooling_mode": "mean"}, {"max_seq_length": None}, ("mean", False, 0)),
    ],
)
def test_what_sentence_transformers_writes(tmp_path, kinds, pooling, settings, expected):
    assert read_embedding(folder(tmp_path, kinds, pooling, settings), 512) == (EmbeddingSettings(*expected), ())


@pytest.mark.parametrize(
    ("kinds", "pooling", "reason"),
    [
        (["Transformer", "Pooling", "Dense"], MEAN, "its modules are Transformer, Pooling, Dense"),
        (["Transformer", "Pooling"], {"pooling_mode_max_tokens": True}, "its pooling is pooling_mode_max_tokens"),
        (["Transformer", "Pooling"], {**CLS, "pooling_mode_mean_tokens": True}, "its pooling is cls+mean"),
        (["Transformer", "Pooling"], {}, "its pooling is none"),
    ],
)
def test_other_ways_are_named(tmp_path, kinds, pooling, reason):
    embedding, (remark,) = read_embedding(folder(tmp_path, kinds, pooling), 512)
    assert embedding == NO_EMBEDDING
    assert reason in remark


def test_the_length_may_be_the_tokenizer_s(tmp_path):
    """As version 6 of sentence-transformers writes it; transformers writes 1e30 for an unknown one."""
    directory = folder(tmp_path, ["Transformer", "Pooling"], MEAN, {})
    for length, expected in ((256, 256), (512, 0), (10**30, 0)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
        assert read_embedding(directory, 512)[0].max_seq_length == expected


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"default_prompt_name": "query"}, r"default_prompt_name is 'query': 'query: ' is put .*begin each text with"),
        ({"default_prompt_name": "other"}, r"default_prompt_name is 'other': None is put before"),
        ({"model_type": "CrossEncoder"}, r'model_type is "CrossEncoder"; supported: "SentenceTransformer"; remove'),
    ],
)
def test_prompts_are_named(tmp_path, config, says):
    directory = folder(tmp_path, ["Transformer", "Pooling"], MEAN, {"max_seq_length": 9, "other": 1})
    fields = {"prompts": {"query": "query: ", "passage": ""}, "default_prompt_name": None, "truncate_dim": 5}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(fields))
    unknown, prompts, further = read_embedding(directory, 512)[1]
    assert "query 'query: '" in prompts and "passage" not in prompts
    assert unknown.endswith("not read: other") and further.endswith("not read: truncate_dim")
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps({**fields, **config}))
    with pytest.raises(InputError, match=f"config_sentence_transformers.json: {says}"):
        read_embedding(directory, 512)


def test_damaged_files_are_named(tmp_path):
    directory = folder(tmp_path, ["Transformer", "Pooling"], MEAN, {"max_seq_length": 1})
    with pytest.raises(InputError, match=r"sentence_bert_config\.json: max_seq_length is 1"):
        read_embedding(directory, 512)
    (tmp_path / "modules.json").write_text('[{"type": "Transformer", "path": "0_Transformer"}]')
    with pytest.raises(InputError, match=r"path of Transformer is '0_Transformer'; supported: '', the folder itself"):
        read_embedding(directory, 512)
    (tmp_path / "modules.json").write_text('{"0": "x"}')
    with pytest.raises(InputError, match=r"modules\.json is not a list of modules"):
        read_embedding(directory, 512)


@pytest.mark.parametrize(
    "embedding", [EmbeddingSettings("mean", True, 128), EmbeddingSettings("cls", False), NO_EMBEDDING]
)
def test_what_is_written_is_read(tmp_path, embedding):
    write_embedding(str(tmp_path), embedding, 32, 512)
    assert read_embedding(str(tmp_path), 512) == (embedding, ())
    assert (tmp_path / "modules.json").exists() == (embedding != NO_EMBEDDING)


@pytest.mark.parametrize(("theirs", "expected"), [(10, 10), (6, 8), (None, 8), (10**6, None)])
def test_the_longer_of_both_lengths_is_read(tmp_path, theirs, expected):
    """sentence-transformers cuts at its own length, whatever the tokenizer's is."""
    write_folder("bert", golden("bert")["number"], tmp_path / "theirs")
    folder = read_folder(str(tmp_path / "theirs"))
    export(dataclasses.replace(folder, embedding=EmbeddingSettings("mean")), str(tmp_path / "ours"), "hf")
    for name, field, length in (("sentence_bert", "max_seq_length", theirs), ("tokenizer", "model_max_length", 8)):
        path = tmp_path / f"ours/{name}_config.json"
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | {field: length}))
    assert read_folder(str(tmp_path / "ours")).max_seq_length == expected


def test_dimensions_that_vectors_may_be_cut_to_are_kept(tmp_path):
    write_folder("bert", golden("bert")["number"], tmp_path / "theirs", matryoshka_dimensions=[4, 2])
    folder = read_folder(str(tmp_path / "theirs"))
    embedding = dataclasses.replace(folder.embedding, pooling="mean")
    assert embedding.matryoshka_dimensions == (4, 2)
    export(dataclasses.replace(folder, embedding=embedding), str(tmp_path / "ours"), "hf")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["matryoshka_dimensions"] == [4, 2]
    (fields,) = json.loads(json.dumps(embedding_fields(embedding))).values()
    assert EmbeddingSettings(**fields) == embedding
    assert "matryoshka_dimensions" not in embedding_fields(EmbeddingSettings("mean"))["embedding"]
    write_folder("bert", golden("bert")["number"], tmp_path / "wrong", matryoshka_dimensions=4)
    with pytest.raises(InputError, match=r"config.json: matryoshka_dimensions is 4; it must be a list of numbers"):
        read_folder(str(tmp_path / "wrong"))
