"""Forward equality with recorded outputs of `transformers`; tests/parity compares live, both ways."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.models.model_folders import read_huggingface

GOLDEN = Path(__file__).parent / "golden_transformers"  # made by its make.py
TOLERANCE = 2e-5


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
def test_outputs_equal_those_of_transformers(tmp_path, hidden_act):
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    config = (tmp_path / "config.json").read_text()
    assert '"gelu_new"' in config
    (tmp_path / "config.json").write_text(config.replace('"gelu_new"', f'"{hidden_act}"'))
    arrays = dict(np.load(GOLDEN / "outputs.npz"))
    inputs = {name: arrays[name] for name in ("input_ids", "input_mask", "segment_ids")}
    read = read_huggingface(str(tmp_path))
    assert read.untrained == ()
    theirs = {k.partition("/")[2]: v for k, v in arrays.items() if k.partition("/")[0] == hidden_act}
    assert_close(outputs(read.model, inputs), theirs)


def test_the_golden_outputs_distinguish_the_two_gelus():
    arrays = np.load(GOLDEN / "outputs.npz")
    assert np.abs(arrays["gelu/mlm_logits"] - arrays["gelu_new/mlm_logits"]).max() > 5 * TOLERANCE
