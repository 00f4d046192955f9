"""Hugging Face's MPNet and DeBERTa-v2: recorded outputs of `transformers`, round trips, refusals."""

import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import RobertaForMaskedLM
from tests.support.models.model_folders import (
    assert_equal,
    change_config,
    change_tensors,
    read_huggingface,
    write_huggingface,
)
from tests.support.models.tiny_encoders import DEBERTA_FIELDS, MPNET_FIELDS
from tests.support.models.variants_of_transformers import GOLDEN, TOLERANCE
from tests.unit.bert_keras.convert.test_variants import SIZES, WORDS, modern_backbone

SHAPE = BertConfig(9, 8, 2, 2, 24, max_position_embeddings=6, hidden_act="gelu_erf")
MPNET = dataclasses.replace(SHAPE, **MPNET_FIELDS)
DEBERTA = dataclasses.replace(SHAPE, **DEBERTA_FIELDS)
# The class of `transformers`: ours, its configuration, the family, the tokenizer.
MODELS = {
    "MPNetForMaskedLM": (RobertaForMaskedLM, MPNET, "mpnet", None),
    "MPNetModel": (BertBackbone, MPNET, "mpnet", None),
    "DebertaV2ForMaskedLM": (RobertaForMaskedLM, DEBERTA, "deberta-v2", WORDS),
    "DebertaV2Model": (modern_backbone, dataclasses.replace(DEBERTA, shares_position_keys=False), "deberta-v2", WORDS),
}
# Of golden_transformers_variants/make.py.
CONFIGS = {
    "mpnet": {"model_type": "mpnet", "max_position_embeddings": 14, "layer_norm_eps": 1e-5},
    "deberta_v2": {
        "model_type": "deberta-v2",
        "max_position_embeddings": 12,
        "relative_attention": True,
        "position_biased_input": False,
        "norm_rel_ebd": "layer_norm",
        "pos_att_type": "p2c|c2p",
        "position_buckets": 4,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_equal_those_of_transformers(tmp_path, name):
    arrays = dict(np.load(GOLDEN / f"{name}.npz"))
    save_file({k: v for k, v in arrays.items() if "/" not in k}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, **CONFIGS[name]}))
    read = read_huggingface(str(tmp_path))
    assert (read.untrained, read.remarks) == ((), ())
    inputs = {name: arrays[f"inputs/{name}"] for name in ("input_ids", "input_mask", "segment_ids")}
    outputs, real = read.model({**inputs, "masked_lm_positions": None}), inputs["input_mask"] == 1
    for ours, theirs in (("sequence_output", "last_layer"), ("mlm_logits", "logits")):
        expected = arrays[f"outputs/{theirs}"][real]
        np.testing.assert_allclose(np.asarray(outputs[ours])[real], expected, rtol=0, atol=TOLERANCE, err_msg=ours)


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_bit_equal(random_bert, tmp_path, name):
    model_class, config, family, tokenizer = MODELS[name]
    model = random_bert(config, model_class)
    assert write_huggingface(model, tokenizer, str(tmp_path), family) == ((), ())
    stored = json.loads((tmp_path / "config.json").read_text())
    assert (stored["model_type"], stored["architectures"]) == (family, [name])
    read = read_huggingface(str(tmp_path))
    assert (read.family, read.untrained, read.remarks, read.model.config) == (family, (), (), config)
    assert_equal(read.model, model)


def test_what_else_a_released_deberta_holds_is_left_out(random_bert, tmp_path):
    """The head for replaced tokens and the positions of its decoder (microsoft/deberta-v3-base)."""
    model = random_bert(DEBERTA, modern_backbone)
    write_huggingface(model, WORDS, str(tmp_path), "deberta-v2")
    further = {
        "deberta.embeddings.position_embeddings.weight": np.ones((6, 8), "float32"),
        "mask_predictions.dense.weight": np.ones((8, 8), "float32"),
        "pooler.dense.bias": np.ones(8, "float32"),
    }
    change_tensors(tmp_path, lambda tensors: {**tensors, **further})
    read = read_huggingface(str(tmp_path))
    assert_equal(read.model, model)
    (remark,) = read.remarks
    assert "its head is left out (mask_predictions.dense.weight, pooler.dense.bias)" in remark


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("MPNetModel", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets is 64; supported: 32"),
        ("DebertaV2Model", {"conv_kernel_size": 3}, "conv_kernel_size is 3; supported: 0"),
        ("DebertaV2Model", {"position_biased_input": True}, "position_biased_input is True; supported: False"),
        ("DebertaV2Model", {"pos_att_type": ["c2p"]}, r"pos_att_type is \['c2p'\]; supported: 'p2c|c2p'"),
        ("DebertaV2Model", {"attention_head_size": 2}, "attention_head_size is 2; supported: 4"),
        ("DebertaV2Model", {"position_buckets": -1}, "relative_buckets is -1, which must be a multiple of 4"),
    ],
)
def test_other_encoders_are_refused(random_bert, tmp_path, name, fields, says):
    model_class, config, family, _ = MODELS[name]
    write_huggingface(random_bert(config, model_class), None, str(tmp_path), family)
    change_config(tmp_path, **fields)
    with pytest.raises(InputError, match=f"config.json: .*{says}"):
        read_huggingface(str(tmp_path))
