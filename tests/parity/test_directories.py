"""Directories of `transformers` read here, and ours there: equal outputs, weights and tokens."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import read_huggingface, write_huggingface

MAKE = runpy.run_path(str(Path(__file__).parents[1] / "unit/bert_keras/convert/golden_transformers/make.py"))
TOLERANCE = 2e-5
SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
TEXT = "The cats sat, café!"


def outputs(model, inputs):
    """Every output of the model, under the names of golden_transformers/make.py; masked-LM logits everywhere."""
    rows, length = inputs["input_ids"].shape
    result = model({**inputs, "masked_lm_positions": np.tile(np.arange(length), (rows, 1))})
    layers = {f"layer_{i}": layer for i, layer in enumerate(result["encoder_outputs"])}
    return {**layers, **{name: result[name] for name in ("pooled_output", "mlm_logits", "nsp_logits")}}


def assert_close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "gelu_pytorch_tanh"])
def test_a_model_of_transformers_is_read(tmp_path, hidden_act):
    theirs = MAKE["random_bert"](hidden_act, **SIZES, intermediate_size=72, max_position_embeddings=12)
    theirs.save_pretrained(tmp_path)
    inputs = MAKE["random_inputs"](SIZES["vocab_size"])
    read = read_huggingface(str(tmp_path))
    assert read.untrained == ()
    assert_close(outputs(read.model, inputs), MAKE["outputs"](theirs, inputs))


@pytest.mark.parametrize("class_name", ["BertModel", "BertForMaskedLM", "BertForNextSentencePrediction"])
def test_parts_saved_by_transformers_are_read(tmp_path, class_name):
    config = transformers.BertConfig(**SIZES, intermediate_size=72, max_position_embeddings=12)
    getattr(transformers, class_name)(config).save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    untrained = {
        "BertModel": (),
        "BertForMaskedLM": ("pooler", "next-sentence head"),
        "BertForNextSentencePrediction": ("masked-LM head",),
    }
    assert read_huggingface(str(tmp_path)).untrained == untrained[class_name]


@pytest.mark.parametrize("hidden_act", ["gelu_tanh", "gelu_erf"])
def test_transformers_loads_what_is_written(random_bert, tmp_path, hidden_act):
    vocabulary = [*SPECIAL_TOKENS, "the", "The", "cat", "##s", "sat", ",", "!", "cafe", "café"]
    config = BertConfig(len(vocabulary), 32, 3, 4, 72, max_position_embeddings=12, hidden_act=hidden_act)
    ours = random_bert(config, BertForPreTraining)
    inputs = MAKE["random_inputs"](config.vocab_size)
    for lower_case in (True, False):
        tokenizer = BertTokenizer(vocabulary, lower_case)
        write_huggingface(ours, tokenizer, str(tmp_path))
        their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert their_tokenizer.tokenize(TEXT) == tokenizer.tokenize(TEXT)
    theirs, report = transformers.AutoModelForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert_close(outputs(ours, inputs), MAKE["outputs"](theirs.eval(), inputs))
    theirs.save_pretrained(tmp_path / "again")
    their_tokenizer.save_pretrained(tmp_path / "again")
    again = read_huggingface(str(tmp_path / "again"))
    assert again.tokenizer.vocabulary == tuple(vocabulary) and again.tokenizer.normalization == tokenizer.normalization
    for weight, same in zip(again.model.get_weights(), ours.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, same)


def test_transformers_loads_a_backbone(random_bert, tmp_path):
    config = BertConfig(50, 32, 3, 4, 72, max_position_embeddings=12)
    ours = random_bert(config, BertBackbone)
    write_huggingface(ours, None, str(tmp_path))
    theirs, report = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    inputs = MAKE["random_inputs"](config.vocab_size)
    tensors = [torch.from_numpy(inputs[name]) for name in ("input_ids", "input_mask", "segment_ids")]
    pooled = theirs.eval()(*tensors).pooler_output.detach().numpy()
    np.testing.assert_allclose(ours(inputs)["pooled_output"], pooled, rtol=0, atol=TOLERANCE)
