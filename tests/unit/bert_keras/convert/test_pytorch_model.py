"""`pytorch_model.bin`: tensors are read without PyTorch, and nothing that its pickle names is run."""

import collections
import io
import json
import pickle
import shutil
import zipfile
from typing import ClassVar

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_keras.convert.formats import read_folder
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from tests.support.models.model_folders import read_huggingface, write_huggingface

CONFIG = BertConfig(9, 8, 1, 2, 24, max_position_embeddings=6, type_vocab_size=2)
STORAGES = {"float32": "FloatStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage", "int64": "LongStorage"}


class Named:
    """Pickles as a name of another module, which need not be installed."""

    def __init__(self, module, name):
        self.words = module, name


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


class Storage:
    def __init__(self, *pid):
        self.pid = pid


class Pickler(pickle._Pickler):
    """Writes names as PyTorch does, and storages by their key."""

    def save_named(self, named):
        self.write(pickle.GLOBAL + "{}\n{}\n".format(*named.words).encode())

    dispatch: ClassVar = {**pickle._Pickler.dispatch, Named: save_named}

    def persistent_id(self, value):
        return value.pid if isinstance(value, Storage) else None

    def save_reduce(self, func, args, *rest, obj=None, **more):
        if not isinstance(func, Named):
            return super().save_reduce(func, args, *rest, obj=obj, **more)
        self.save(func)
        self.save(args)
        self.write(pickle.REDUCE)


def rebuilt(array, key, offset=0, strides=None):
    """A tensor as PyTorch pickles it; `strides` count numbers."""
    kind = Named("torch", STORAGES[array.dtype.name])
    steps = strides or tuple(step // array.itemsize for step in array.strides)
    storage = Storage("storage", kind, key, "cpu", array.size)
    hooks = Call(Named("collections", "OrderedDict"))
    return Call(Named("torch._utils", "_rebuild_tensor_v2"), storage, offset, array.shape, steps, False, hooks)


def save(path, entries, storages, byteorder=b"little"):
    pickled = io.BytesIO()
    Pickler(pickled, protocol=2).dump(entries)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled.getvalue())
        archive.writestr("archive/byteorder", byteorder)
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)


def save_old(path, entries, storages):
    """As PyTorch before 1.6 does."""
    sizes = {pid[2]: pid[4] for pid in (entry.arguments[0].pid for entry in entries.values())}
    with open(path, "wb") as file:
        for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, entries, sorted(storages)):
            Pickler(file, protocol=2).dump(value)
        for key in sorted(storages):
            file.write(sizes[key].to_bytes(8, "little") + storages[key])


@pytest.fixture(scope="module")
def whole(random_bert, tmp_path_factory):
    directory = tmp_path_factory.mktemp("written") / "whole"
    write_huggingface(random_bert(CONFIG, BertForPreTraining), None, str(directory))
    return directory


@pytest.fixture
def directory(whole, tmp_path):
    """A folder without weights, beside `whole` with them."""
    shutil.copytree(whole, tmp_path / "whole")
    return shutil.copytree(whole, tmp_path / "bin", ignore=shutil.ignore_patterns("model.safetensors"))


def tensors_of(directory):
    return load_file(directory.parent / "whole" / "model.safetensors")


def plain(tensors):
    entries = collections.OrderedDict((name, rebuilt(value, name)) for name, value in tensors.items())
    entries._metadata = {"version": 1}  # as a state_dict has
    return entries, {name: value.tobytes() for name, value in tensors.items()}


def assert_as_whole(directory, rounded=lambda array: array):
    ours, theirs = (variables_by_path(read_huggingface(str(directory.parent / n)).model) for n in ("bin", "whole"))
    for path in theirs:
        np.testing.assert_array_equal(ours[path], rounded(np.asarray(theirs[path])).astype("float32"), err_msg=path)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("write", [save, save_old])
def test_tensors_are_read_exactly(directory, dtype, write):
    entries, storages = plain({name: value.astype(dtype) for name, value in tensors_of(directory).items()})
    positions = np.arange(6)[None]
    entries["bert.embeddings.position_ids"] = rebuilt(positions, "positions")
    write(directory / "pytorch_model.bin", entries, {**storages, "positions": positions.tobytes()})
    assert_as_whole(directory, lambda array: array.astype(dtype))


def test_tensors_of_one_storage_are_read_by_offset_and_strides(directory):
    tensors, entries, offset = tensors_of(directory), {}, 1
    for name, value in tensors.items():
        strides = tuple(np.cumprod([1, *value.shape[:-1]]).tolist())  # columns lie together
        parameter = Named("torch._utils", "_rebuild_parameter")
        entries[name] = Call(parameter, rebuilt(value, "all", offset, strides), True, {})
        offset += value.size
    values = np.concatenate([np.zeros(1, "float32"), *(value.T.reshape(-1) for value in tensors.values())])
    save(directory / "pytorch_model.bin", entries, {"all": values.tobytes()})
    assert_as_whole(directory)


def test_shards_are_read(directory):
    tensors, files = tensors_of(directory), {}
    for number, names in enumerate((sorted(tensors)[:9], sorted(tensors)[9:])):
        shard = f"pytorch_model-0000{number}.bin"
        save(directory / shard, *plain({name: tensors[name] for name in names}))
        files |= dict.fromkeys(names, shard)
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    assert_as_whole(directory)
    (directory / shard).unlink()
    with pytest.raises(InputError, match=f"{shard} is missing, but the index beside it names it"):
        read_huggingface(str(directory))


ARRAY = np.zeros((2, 3), "float32")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a": Call(Named("posix", "system"), "touch ran")}, "names posix.system beside its tensors"),
        ({"a": Call(Named("builtins", "eval"), "open('ran', 'w')")}, "names builtins.eval beside"),
        ({"a": Named("torch._utils", "_rebuild_tensor_v2")}, "a is no tensor but function"),
        ({"a": Call(Named("torch", "FloatStorage"), 3)}, "is damaged .TypeError"),
        ({"a": Storage("storage", "O", "a", "cpu", 6)}, "is damaged .UnpicklingError: no type of numbers: O"),
        ({"model": {"a": 1}, "epoch": 3}, "model is no tensor but dict; save the state_dict of the model alone"),
        ([1], "holds no tensors by name but list"),
        ({"a": rebuilt(ARRAY, "a", 1)}, r"the tensor a \[2, 3\] lies beyond its storage"),
        ({"a": rebuilt(ARRAY, "a", -1)}, r"the tensor a \[2, 3\] lies beyond its storage"),
        ({"a": rebuilt(ARRAY, "b")}, r"the tensor a \[2, 3\] has no storage"),
    ],
)
def test_all_but_tensors_by_name_is_refused(directory, entries, message, monkeypatch):
    monkeypatch.chdir(directory)
    save(directory / "pytorch_model.bin", entries, {"a": ARRAY.tobytes()})
    with pytest.raises(InputError, match=message) as error:
        read_huggingface(str(directory))
    assert "pytorch_model.bin" in str(error.value) and not (directory / "ran").exists()


def test_other_and_damaged_files_are_refused(directory):
    def refused(says, read=read_huggingface):
        with pytest.raises(InputError, match=says):
            read(str(directory))

    path, (entries, storages) = directory / "pytorch_model.bin", plain(tensors_of(directory))
    save(path, entries, storages)
    content = path.read_bytes()
    query = storages["bert.encoder.layer.0.attention.self.query.weight"]
    path.write_bytes(content.replace(query, query[:-1] + bytes([query[-1] ^ 1])))
    refused(r"is damaged: the tensor bert.encoder.* \[8, 8\]: Bad CRC-32")
    path.write_bytes(content[:-30])
    refused("is no zip, as PyTorch writes it, but damaged; copy", read_folder)  # which reads no weights
    save_old(path, entries, storages)
    path.write_bytes(path.read_bytes()[:-1])
    refused("is damaged .EOFError: it ends in the storage cls.seq_relationship.weight")
    save_old(path, {"a": Call(Named("posix", "system"), Storage(0, 0, "a", 0, 0))}, {})
    refused("names posix.system beside its tensors")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("text", "")
    refused(r"is a zip without data\.pkl")
    save(path, entries, storages, b"big")
    refused("big-endian")
