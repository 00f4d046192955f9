"""Files of weights that are damaged or something else: one line for each."""

import json
import shutil
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest

from bert_keras.convert.huggingface.tensors import CONFIG_FILE
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from tests.support.models.model_folders import (
    change_tensors,
    put,
    read_any,
    read_huggingface,
    write_huggingface,
    write_tf1,
)

CONFIG = BertConfig(9, 8, 1, 2, 24, max_position_embeddings=6, hidden_act="gelu_erf")
QUERY = "bert/tf_bert_for_sequence_classification/bert/encoder/layer_._0/attention/self/query/kernel:0"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1\nsize 9\n"
PAGE = b"\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"


@pytest.fixture(scope="module")
def model(random_bert):
    return random_bert(CONFIG, BertForPreTraining)


@pytest.fixture(scope="module")
def written(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("written")
    write_huggingface(model, None, str(directory))
    return directory


@pytest.fixture
def directory(written, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(written, tmp_path / "copy")


@pytest.fixture
def tf_model(tmp_path):
    """`tf_model.h5` as a class of transformers wrote it; test_golden_tensorflow.py reads it whole."""
    shutil.unpack_archive(Path(__file__).parent / "golden_tensorflow" / "models.tar.xz", tmp_path, filter="data")
    return tmp_path / "bert-classifier" / "tf_model.h5"


def with_query(value):
    """A change: another matrix in the place of the first layer's query."""

    def change(path):
        with h5py.File(path, "a") as file:
            del file[QUERY]
            file[QUERY] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda path: path.write_bytes(path.read_bytes()[:9000]),
            r"tf_model.h5 is damaged or incomplete \(.*truncated",
        ),
        (lambda path: path.write_bytes(b"no hdf5"), r"tf_model.h5 is damaged or incomplete"),
        (with_query(np.zeros((16, 15), "float32")), r"self.query.weight \[15, 16\] must be \[16, 16\]"),
        (with_query(np.full((16, 16), np.nan, "float32")), r"query.weight \[16, 16\] has 256 numbers that are NaN"),
        (with_query(np.zeros((16, 16), "int32")), r"self.query.weight \[16, 16\] is int32"),
    ],
)
def test_a_broken_tf_model_is_refused(tf_model, change, says):
    change(tf_model)
    with pytest.raises(InputError, match=says):
        read_huggingface(str(tf_model.parent))


def test_a_keras_file_of_another_model_is_refused(tf_model):
    tf_model.unlink()
    with h5py.File(tf_model, "w") as file:
        file.attrs["keras_version"] = "2.15.0"
        file["dense/other/dense/kernel:0"] = np.zeros((2, 3))
    with pytest.raises(InputError, match=r"has no tensor of BERT, only others \(dense.weight\)"):
        read_huggingface(str(tf_model.parent))


def test_half_a_part_is_refused(directory):
    weights, part = directory / "model.safetensors", directory / "model-00001-of-00001.safetensors"
    part.write_bytes(weights.read_bytes()[:999])
    weights.unlink()
    index = {"weight_map": {"bert.pooler.dense.bias": part.name}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=f"{part.name} is damaged or not a safetensors file"):
        read_huggingface(str(directory))


def test_a_type_that_numpy_lacks_is_refused(directory):
    change_tensors(directory, put("bert.embeddings.LayerNorm.weight", np.zeros(8, ml_dtypes.float8_e4m3fn)))
    with pytest.raises(InputError, match=r"the tensor bert.embeddings.LayerNorm.weight is F8_E4M3, no type of weights"):
        read_huggingface(str(directory))


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "tf_model.h5", CONFIG_FILE])
@pytest.mark.parametrize(("content", "says"), [(POINTER, "pointer of git-LFS .*git lfs pull"), (PAGE, "is a web page")])
def test_what_a_download_gives_in_a_file_s_place_is_refused(directory, name, content, says):
    if name != CONFIG_FILE:
        (directory / "model.safetensors").unlink()
    (directory / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} {says}|{name} is a {says}"):
        read_huggingface(str(directory))


@pytest.mark.parametrize("end", ["index", "data-00000-of-00001"])
def test_a_pointer_of_git_lfs_is_no_checkpoint(model, tmp_path, end):
    write_tf1(model, None, str(tmp_path))
    (tmp_path / f"bert_model.ckpt.{end}").write_bytes(POINTER)
    with pytest.raises(InputError, match=f"bert_model.ckpt.{end} is a pointer of git-LFS"):
        read_any(str(tmp_path))


def test_flax_is_refused_with_a_remedy(directory):
    (directory / "model.safetensors").rename(directory / "flax_model.msgpack")
    says = r"flax_model.msgpack .* not read; .*CLASS.from_pretrained\(FOLDER, from_flax=True\).save_pretrained"
    with pytest.raises(InputError, match=says):
        read_huggingface(str(directory))
