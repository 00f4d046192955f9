"""Forward equality with `transformers`: with what it once computed, and, where it is installed, live, both ways."""

import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_keras.backbone import BertBackbone
from bert_keras.config import BertConfig
from bert_keras.heads import BertForPreTraining
from bert_keras.interchange.huggingface import read_huggingface, write_huggingface
from bert_keras.tokenizer import SPECIAL_TOKENS, BertTokenizer

GOLDEN = Path(__file__).parent / "golden_transformers"  # made by its make.py
TOLERANCE = 2e-5
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


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new"])
def test_d4_outputs_equal_those_of_transformers(tmp_path, hidden_act):
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    config = (tmp_path / "config.json").read_text()
    assert '"gelu_new"' in config
    (tmp_path / "config.json").write_text(config.replace('"gelu_new"', f'"{hidden_act}"'))
    arrays = dict(np.load(GOLDEN / "outputs.npz"))
    inputs = {name: arrays[name] for name in ("input_ids", "input_mask", "segment_ids")}
    read = read_huggingface(str(tmp_path))
    assert read.initialised == ()
    theirs = {k.partition("/")[2]: v for k, v in arrays.items() if k.partition("/")[0] == hidden_act}
    assert_close(outputs(read.model, inputs), theirs)


def test_d4_the_golden_outputs_tell_the_two_gelus_apart():
    arrays = np.load(GOLDEN / "outputs.npz")
    assert np.abs(arrays["gelu/mlm_logits"] - arrays["gelu_new/mlm_logits"]).max() > 5 * TOLERANCE


@pytest.fixture(scope="module")
def make():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return runpy.run_path(str(GOLDEN / "make.py"))


SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "gelu_pytorch_tanh"])
def test_a_model_of_transformers_is_read(make, tmp_path, hidden_act):
    theirs = make["random_bert"](hidden_act, **SIZES, intermediate_size=72, max_position_embeddings=12)
    theirs.save_pretrained(tmp_path)
    inputs = make["random_inputs"](SIZES["vocab_size"])
    read = read_huggingface(str(tmp_path))
    assert read.initialised == ()
    assert_close(outputs(read.model, inputs), make["outputs"](theirs, inputs))


@pytest.mark.parametrize("class_name", ["BertModel", "BertForMaskedLM", "BertForNextSentencePrediction"])
def test_parts_saved_by_transformers_are_read(make, tmp_path, class_name):
    import transformers

    config = transformers.BertConfig(**SIZES, intermediate_size=72, max_position_embeddings=12)
    getattr(transformers, class_name)(config).save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    initialised = {
        "BertModel": (),
        "BertForMaskedLM": ("pooler", "next-sentence head"),
        "BertForNextSentencePrediction": ("masked-LM head",),
    }
    assert read_huggingface(str(tmp_path)).initialised == initialised[class_name]


@pytest.mark.parametrize("hidden_act", ["gelu_tanh", "gelu_erf"])
def test_transformers_loads_what_is_written(make, random_bert, tmp_path, hidden_act):
    import transformers

    vocabulary = [*SPECIAL_TOKENS, "the", "The", "cat", "##s", "sat", ",", "!", "cafe", "café"]
    config = BertConfig(len(vocabulary), 32, 3, 4, 72, max_position_embeddings=12, hidden_act=hidden_act)
    ours = random_bert(config, BertForPreTraining)
    inputs = make["random_inputs"](config.vocab_size)
    for lower_case in (True, False):
        tokenizer = BertTokenizer(vocabulary, lower_case)
        write_huggingface(ours, tokenizer, str(tmp_path))
        their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert their_tokenizer.tokenize(TEXT) == tokenizer.tokenize(TEXT)
    theirs, report = transformers.AutoModelForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert_close(outputs(ours, inputs), make["outputs"](theirs.eval(), inputs))
    theirs.save_pretrained(tmp_path / "again")
    their_tokenizer.save_pretrained(tmp_path / "again")
    again = read_huggingface(str(tmp_path / "again"))
    assert (again.vocabulary, again.lower_case) == (vocabulary, False)
    for weight, same in zip(again.model.get_weights(), ours.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, same)


def test_transformers_loads_a_backbone(make, random_bert, tmp_path):
    import transformers

    config = BertConfig(50, 32, 3, 4, 72, max_position_embeddings=12)
    ours = random_bert(config, BertBackbone)
    write_huggingface(ours, None, str(tmp_path))
    theirs, report = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    inputs = make["random_inputs"](config.vocab_size)
    tensors = [make["torch"].from_numpy(inputs[name]) for name in ("input_ids", "input_mask", "segment_ids")]
    pooled = theirs.eval()(*tensors).pooler_output.detach().numpy()
    np.testing.assert_allclose(ours(inputs)["pooled_output"], pooled, rtol=0, atol=TOLERANCE)
