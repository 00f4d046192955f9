"""The original's checkpoints: a real one, the Model Garden's, and errors. Round trips: test_written_folders.py."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.convert.weight_copy import tensors_of
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import (
    assert_equal,
    put,
    read_any,
    read_huggingface,
    read_tf1,
    without,
    write_huggingface,
    write_tf1,
)

TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "a", "cat", "##s", "é"], lower_case=False)
CONFIG = BertConfig(9, 8, 2, 2, 24, max_position_embeddings=6, type_vocab_size=3)
QUERY = "bert/encoder/layer_0/attention/self/query/kernel"


@pytest.fixture(scope="module")
def real():
    """A checkpoint of the original, with the slots of its optimizer (shared/data/README.md)."""
    if "BERT_DATA_DIR" not in os.environ:
        pytest.skip("BERT_DATA_DIR is not set")
    return Path(os.environ["BERT_DATA_DIR"]) / "tf1_checkpoint_tiny"


@pytest.fixture(scope="module")
def model(random_bert):
    return random_bert(CONFIG, BertForPreTraining)


@pytest.fixture
def directory(model, tmp_path):
    write_tf1(model, TOKENIZER, str(tmp_path))
    return tmp_path


def change_tensors(directory, change):
    prefix = str(directory / "bert_model.ckpt")
    reader = tf.train.load_checkpoint(prefix)
    tensors = change({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


def test_a_real_checkpoint(real):
    read = read_tf1(str(real), cased=False)
    config = read.model.config
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (4, 2, 4)
    assert (config.vocab_size, config.max_position_embeddings, config.intermediate_size) == (15, 16, 16)
    assert config.hidden_act == "gelu_tanh"  # modeling.py: "gelu" is the tanh approximation
    assert read.tokenizer.vocabulary[:5] == SPECIAL_TOKENS and read.tokenizer.vocabulary[-1] == "boy"
    assert read.untrained == ()

    reader = tf.train.load_checkpoint(str(real / "bert_model.ckpt"))
    ours, theirs = tensors_of(read.model, "tf1"), reader.get_variable_to_shape_map()
    assert ours.keys() == {name for name in theirs if "adam_" not in name and name != "global_step"}
    assert len(ours) == 46 and len(theirs) == 3 * 46 + 1
    kernel = np.asarray(read.model.backbone.encoder_layers[1].attention.key.kernel)
    np.testing.assert_array_equal(kernel, reader.get_tensor("bert/encoder/layer_1/attention/self/key/kernel"))
    nsp = reader.get_tensor("cls/seq_relationship/output_weights").T  # stored as [out, in]
    np.testing.assert_array_equal(np.asarray(read.model.nsp_head.kernel), nsp)
    norm = np.asarray(read.model.backbone.encoder_layers[0].output_layer_norm.gamma)
    np.testing.assert_array_equal(norm, reader.get_tensor("bert/encoder/layer_0/output/LayerNorm/gamma"))


def test_a_real_checkpoint_survives_both_formats(real, tmp_path):
    read = read_tf1(str(real), cased=False)
    tokenizer = read.tokenizer
    write_huggingface(read.model, tokenizer, str(tmp_path / "hf"))
    again = read_huggingface(str(tmp_path / "hf")).model
    write_tf1(again, tokenizer, str(tmp_path / "tf1"))
    for name, shape in tf.train.list_variables(str(tmp_path / "tf1" / "bert_model.ckpt")):
        value = tf.train.load_variable(str(tmp_path / "tf1" / "bert_model.ckpt"), name)
        assert list(value.shape) == shape
        np.testing.assert_array_equal(value, tf.train.load_variable(str(real / "bert_model.ckpt"), name))


def test_the_written_configuration_names_the_original_s_gelu(directory):
    assert json.loads((directory / "bert_config.json").read_text())["hidden_act"] == "gelu"


def test_a_checkpoint_without_heads_is_a_backbone(model, directory):
    change_tensors(directory, lambda t: {name: value for name, value in t.items() if name.startswith("bert/")})
    read = read_tf1(str(directory))
    assert type(read.model) is BertBackbone and read.untrained == ()
    assert_equal(read.model, model.backbone)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without(QUERY), f"{QUERY} [8, 8] of the encoder is missing"),
        (without("cls/predictions/output_bias"), "cls/predictions/output_bias [9] of the masked-LM head is missing"),
        (put(QUERY, np.zeros((8, 7), "float32")), f"{QUERY} [8, 7] must be [8, 8]"),
        (put("bert/other", np.zeros((2, 8), "float32")), "bert/other [2, 8] is not part of a BERT"),
        (put("_CHECKPOINTABLE_OBJECT_GRAPH", b""), "is a checkpoint of TensorFlow 2, but not of a BERT"),
        (put("_CHECKPOINTABLE_OBJECT_GRAPH", b"graph"), "is damaged or incomplete (Error parsing message"),
        (put(QUERY, np.full((8, 8), np.nan, "float32")), f"{QUERY} [8, 8] has 64 numbers that are NaN"),
        (put(QUERY, np.zeros((8, 8), "float64")), f"{QUERY} [8, 8] is float64"),
    ],
)
def test_wrong_tensors_are_refused_by_name(directory, change, says):
    change_tensors(directory, change)
    with pytest.raises(InputError) as error:
        read_tf1(str(directory))
    assert says in str(error.value) and "bert_model.ckpt" in str(error.value)


SLOTS = ("adam_m", "adam_v", "lamb_m", "Adam", "Adam_1", "AdamWeightDecayOptimizer", "AdamWeightDecayOptimizer_1")
SLOTS += ("LAMB", "LAMB_1", "LAMBOptimizer", "Momentum", "AccumulatorM", "ExponentialMovingAverage")
NUMBERS = ("global_step", "beta1_power", "loss_scale", "good_steps", "signal_early_stopping/STOP")


def test_the_state_of_any_optimizer_is_not_read(model, directory):
    change_tensors(
        directory,
        lambda tensors: {
            **tensors,
            **{f"{name}/{slot}": value for name, value in tensors.items() for slot in SLOTS},
            **dict.fromkeys(NUMBERS, np.float32(1)),
        },
    )
    read = read_tf1(str(directory))
    assert_equal(read.model, model)
    assert (read.remarks, read.head_left_out) == ((), "")


@pytest.mark.parametrize("names", [("output_bias", "output_weights"), ("cls/squad/output_weights",)])
def test_the_head_of_a_fine_tuned_model_is_left_out(model, directory, names):
    head = dict.fromkeys((*names, *(f"{name}/{slot}" for name in names for slot in SLOTS)), np.zeros((2, 8), "float32"))
    change_tensors(directory, lambda tensors: {**tensors, **head})
    read = read_tf1(str(directory))
    assert_equal(read.model, model)
    assert f"its head is left out ({', '.join(names)})" in read.head_left_out == read.remarks[0]


def test_a_checkpoint_of_a_training_is_read_by_its_path(model, directory):
    names = ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")
    for step in (10, 20):
        for name in names:
            shutil.copy(directory / name, directory / name.replace("bert_model.ckpt", f"model.ckpt-{step}"))
    for name in names:
        (directory / name).unlink()
    path = str(directory / "model.ckpt-20")
    assert_equal(read_tf1(path).model, model)
    with pytest.raises(InputError, match=f"2 checkpoints and no file `checkpoint`; convert one of them: {path}"):
        read_tf1(str(directory))
    with pytest.raises(InputError, match=f"is one checkpoint of the folder {directory}; give the folder, or make"):
        read_any(path)
    for path in ("model.ckpt-10", "/data/of/another/machine/model.ckpt-10"):
        (directory / "checkpoint").write_text(f'model_checkpoint_path: "{path}"\n')
        assert_equal(read_any(str(directory)).model, model)
    (directory / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-30"\n')
    with pytest.raises(InputError, match=r"its file `checkpoint` names .*model.ckpt-30, which is missing"):
        read_any(str(directory))


def test_damaged_and_missing_files_are_named(directory):
    def refused(says, folder=directory):
        with pytest.raises(InputError, match=says):
            read_tf1(str(folder))

    data, index = directory / "bert_model.ckpt.data-00000-of-00001", directory / "bert_model.ckpt.index"
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    refused(r"bert_model.ckpt is damaged or incomplete \(its data files have")
    data.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused("bert_model.ckpt is damaged or incomplete")
    named_like_a_pattern = directory.rename(directory.with_name("bert[a]"))
    refused(r"bert\[a\]/bert_model.ckpt: TensorFlow reads .*; rename it", named_like_a_pattern)
    named_like_a_pattern.rename(directory)
    data.unlink()
    refused("bert_model.ckpt is damaged or incomplete")
    index.write_bytes(b"no index")
    refused("bert_model.ckpt is damaged or incomplete")
    index.unlink()
    refused("bert_model.ckpt.index is missing")
    for text, says in (("[]", "it holds list"), ("{", "bert_config.json: "), ('{"hidden_act": "relu"}', "'relu'")):
        (directory / "bert_config.json").write_text(text)
        refused(says)
    (directory / "bert_config.json").unlink()
    refused("bert_config.json is missing")


# Of the TF Model Garden in 2019 (TF Hub's first versions): google-research/bert's names -> its own.
NAMES_OF_2019 = (
    ("bert", "bert_model"),
    ("embeddings/word_embeddings", "word_embeddings/embeddings"),
    ("embeddings/token_type_embeddings", "embedding_postprocessor/type_embeddings"),
    ("embeddings/position_embeddings", "embedding_postprocessor/position_embeddings"),
    ("embeddings/LayerNorm", "embedding_postprocessor/layer_norm"),
    ("attention/self", "self_attention"),
    ("attention/output/dense", "self_attention_output"),
    ("attention/output/LayerNorm", "self_attention_layer_norm"),
    ("intermediate/dense", "intermediate"),
    ("output/dense", "output"),
    ("output/LayerNorm", "output_layer_norm"),
    ("pooler/dense", "pooler_transform"),
)


def variable(name, value):
    """A variable of that generation: the axis of heads is one of its own."""
    for old, new in NAMES_OF_2019:
        name = name.replace(old, new)
    if "self_attention/" in name:
        value = value.reshape(*value.shape[:-1], 2, -1)
    elif name.endswith("self_attention_output/kernel"):
        value = value.reshape(2, -1, value.shape[-1])
    return tf.Variable(value, name=name)


def write_objects(folder, variables):
    state = tf.Variable(np.zeros((9, 8), "float32"), name="Adam/m/bert_model/word_embeddings/embeddings")
    optimizer = tf.train.Checkpoint(v=state)
    objects = {f"v{i}": value for i, value in enumerate(variables)}
    tf.train.Checkpoint(optimizer=optimizer, **objects).write(str(folder / "ckpt"))


def test_objects_are_read_by_the_names_of_their_variables(model, tmp_path):
    tensors = tensors_of(model.backbone, "tf1")
    variables = [variable(name, value) for name, value in tensors.items()]
    write_objects(tmp_path, [*variables, tf.Variable([1.0], name="other/kernel"), tf.Variable(1.0, name="step")])
    read = read_any(str(tmp_path))
    assert_equal(read.model, model.backbone)
    assert read.model.config == CONFIG and "its head is left out (other/kernel)" in read.head_left_out
    (tmp_path / "bert_config.json").write_text(json.dumps({**json.loads(CONFIG.to_json()), "num_attention_heads": 4}))
    with pytest.raises(InputError, match=r"ckpt.index has 2 attention heads, but .*bert_config.json says 4"):
        read_tf1(str(tmp_path))
    (tmp_path / "bert_config.json").unlink()
    write_objects(tmp_path, [*variables, tf.Variable(np.zeros((9, 8), "float32"), name="word_embeddings/embeddings")])
    with pytest.raises(InputError, match="ckpt has two variables of one name"):
        read_tf1(str(tmp_path))
    tensors["bert/embeddings/word_embeddings"] = np.zeros((9, 4), "float32")
    write_objects(tmp_path, [variable(name, value) for name, value in tensors.items()])
    with pytest.raises(InputError, match=r"embeddings have width 4, its encoder 8; .* only BERT is read"):
        read_tf1(str(tmp_path))
