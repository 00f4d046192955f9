"""Outputs equal those that `transformers` recorded, in every family; tests/parity compares live, both ways.

ModernBERT's, with its gradients: test_modernbert.py.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.models.golden_folders import CONFIGS, write_golden
from tests.support.models.model_folders import change_config, read_huggingface
from tests.support.models.variants_of_transformers import TOLERANCE

GOLDEN = Path(__file__).parent / "golden_transformers"  # made by its make.py


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new"])
def test_every_output_of_a_bert_equals_that_of_transformers(tmp_path, hidden_act):
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    change_config(tmp_path, hidden_act=hidden_act)
    arrays = dict(np.load(GOLDEN / "outputs.npz"))
    inputs = {name: arrays[name] for name in ("input_ids", "input_mask", "segment_ids")}
    rows, length = inputs["input_ids"].shape
    read = read_huggingface(str(tmp_path))
    assert read.untrained == ()
    result = read.model({**inputs, "masked_lm_positions": np.tile(np.arange(length), (rows, 1))})
    ours = {f"layer_{i}": layer for i, layer in enumerate(result["encoder_outputs"])}
    ours |= {name: result[name] for name in ("pooled_output", "mlm_logits", "nsp_logits")}
    theirs = {k.partition("/")[2]: v for k, v in arrays.items() if k.partition("/")[0] == hidden_act}
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=TOLERANCE, err_msg=name)


def test_the_golden_outputs_distinguish_the_two_gelus():
    arrays = np.load(GOLDEN / "outputs.npz")
    assert np.abs(arrays["gelu/mlm_logits"] - arrays["gelu_new/mlm_logits"]).max() > 5 * TOLERANCE


@pytest.mark.parametrize("name", sorted(CONFIGS.keys() - {"modernbert"}))
def test_outputs_of_a_relative_equal_those_of_transformers(tmp_path, name):
    golden = write_golden(name, tmp_path)
    read = read_huggingface(str(tmp_path))
    assert (read.untrained, read.remarks, read.tokenizer) == ((), (), None)
    outputs = read.model({**golden.inputs, "masked_lm_positions": None})
    logits = outputs["mlm_logits" if "mlm_logits" in outputs else "discriminator_logits"]
    golden.assert_close(outputs["sequence_output"], logits)
