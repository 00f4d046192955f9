"""The table of names is the model's, and loads without a framework."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from bert_keras.convert.architecture import Architecture, new_model
from bert_keras.convert.families.table import FAMILIES
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining

CONFIG = BertConfig(15, 8, 3, 2, 24, max_position_embeddings=6, type_vocab_size=3)
BERT = Architecture("bert", CONFIG, 8)
ROBERTA = Architecture("roberta", dataclasses.replace(CONFIG, type_vocab_size=1), 8)
# How many weights there are; those without a name in TensorFlow 1: all of a RoBERTa's, and an ELECTRA's pooler.
TABLES = [
    (BERT, 5 + 16 * 3 + 2 + 5 + 2, ()),
    (ROBERTA, 5 + 16 * 3 + 2 + 5, ("",)),
    (Architecture("electra", CONFIG, 6), 7 + 16 * 3 + 2 + 5 + 4, ("bert/pooler/",)),
]


@pytest.mark.parametrize(("architecture", "count", "not_in_tf1"), TABLES)
def test_the_table_has_every_weight_with_its_shape_and_names_of_its_own(architecture, count, not_in_tf1):
    table, family = architecture.weights(), FAMILIES[architecture.family]
    # Which heads make another model; between them, these have every part of the family.
    models = [new_model(architecture, [part]) for part in ("masked-LM head", "discriminator head", "pooler")]
    found = {path: tuple(v.shape) for model in models for path, v in variables_by_path(model).items()}
    assert found == {weight.path: weight.shape for weight in table} and len(table) == count
    for format_ in ("tf1", "huggingface", "keras_hub"):
        names = [stored.name for weight in table if (stored := weight.stored(format_))]
        assert len({*names}) == len(names)
    assert {w.path for w in table if not w.tf1} == {path for path in found if path.startswith(not_in_tf1)}
    theirs = {weight.huggingface.name for weight in table if weight.huggingface}
    assert all(name.startswith((family.prefix, *family.head_prefixes)) for name in theirs)
    assert {*family.tied.values()} <= theirs and not {*family.tied} & theirs


def test_transposed_weights():
    """Hugging Face stores every kernel as [out, in], the original the next-sentence kernel alone."""
    for weight in BERT.weights():
        assert weight.huggingface.transposed == weight.path.endswith("/kernel")
        assert weight.tf1.transposed == (weight.path == "seq_relationship/kernel")


def test_both_columns_name_the_same_weight():
    """By the rule by which Hugging Face named its tensors after the original's (load_tf_weights_in_bert)."""
    words = {"kernel": "weight", "gamma": "weight", "beta": "bias", "output_bias": "bias", "output_weights": "weight"}
    for weight in BERT.weights():
        parts = weight.tf1.name.replace("layer_", "layer/").split("/")
        name = ".".join(words.get(part, part) for part in parts)
        if parts[-1].endswith("_embeddings"):
            name += ".weight"
        assert weight.huggingface.name == name
    assert any(w.tf1.name == "bert/encoder/layer_0/attention/self/query/kernel" for w in BERT.weights())


def test_a_backbone_has_the_same_paths_alone_and_within_a_model():
    model, alone = BertForPreTraining(CONFIG, name="any"), BertBackbone(CONFIG, name="another")
    model.build()
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
