"""The table of names is the model's, and loads without a framework."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_keras.convert.architecture import Architecture
from bert_keras.convert.families.weight import Stored
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining

CONFIG = BertConfig(15, 8, 3, 2, 24, max_position_embeddings=6, type_vocab_size=3)
WEIGHTS = Architecture("bert", CONFIG, CONFIG.hidden_size).weights()


@pytest.fixture(scope="module")
def model():
    model = BertForPreTraining(CONFIG, name="any")
    model.build()
    return model


def test_the_table_has_every_weight_with_its_shape(model):
    table = {weight.path: weight.shape for weight in WEIGHTS}
    assert table == {path: tuple(variable.shape) for path, variable in variables_by_path(model).items()}
    assert len(table) == len(WEIGHTS) == 5 + 16 * 3 + 2 + 5 + 2


@pytest.mark.parametrize("format_", ["tf1", "huggingface"])
def test_no_two_weights_share_a_name(format_):
    assert len({weight.stored(format_).name for weight in WEIGHTS}) == len(WEIGHTS)


def test_transposed_weights():
    """Hugging Face stores every kernel as [out, in], the original the next-sentence kernel alone."""
    for weight in WEIGHTS:
        assert weight.huggingface.transposed == weight.path.endswith("/kernel")
        assert weight.tf1.transposed == (weight.path == "seq_relationship/kernel")


def test_rows_before_the_first_position_are_zeros():
    config = dataclasses.replace(CONFIG, type_vocab_size=1)
    weights = Architecture("roberta", config, config.hidden_size).weights()
    (weight,) = (w for w in weights if w.path == "bert/embeddings/position_embeddings/embeddings")
    stored = weight.to_file("huggingface", np.ones((6, 8), "float32"))
    np.testing.assert_array_equal(stored, np.concatenate([np.zeros((2, 8)), np.ones((6, 8))]))
    assert weight.from_file("huggingface", stored).min() == 1


def test_the_worked_example():
    (found,) = (w for w in WEIGHTS if w.path == "bert/layer_0/attention/query/kernel")
    assert found.tf1 == Stored("bert/encoder/layer_0/attention/self/query/kernel")
    assert found.huggingface == Stored("bert.encoder.layer.0.attention.self.query.weight", transposed=True)


def test_both_columns_name_the_same_weight():
    """By the rule by which Hugging Face named its tensors after the original's (load_tf_weights_in_bert)."""
    words = {"kernel": "weight", "gamma": "weight", "beta": "bias", "output_bias": "bias", "output_weights": "weight"}
    for weight in WEIGHTS:
        parts = weight.tf1.name.replace("layer_", "layer/").split("/")
        name = ".".join(words.get(part, part) for part in parts)
        if parts[-1].endswith("_embeddings"):
            name += ".weight"
        assert weight.huggingface.name == name


def test_a_backbone_has_the_same_paths_alone_and_within_a_model(model):
    alone = BertBackbone(CONFIG, name="another")
    alone.build()
    within = variables_by_path(model.backbone)
    assert variables_by_path(alone).keys() == within.keys() < variables_by_path(model).keys()


def test_it_imports_neither_tensorflow_nor_keras():
    code = (
        "import sys, bert_keras.convert.huggingface.folder, bert_keras.convert.keras_hub, bert_keras.convert.tf1\n"
        "print(*{'tensorflow', 'keras', 'keras_hub', 'torch'} & set(sys.modules))"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == ""
