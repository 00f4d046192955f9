"""ELECTRA-small in its released shape, whose embeddings are narrower than its encoder: against `transformers`."""

import json
import zlib

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_keras.convert.architecture import Architecture
from tests.support.models import electra_sizes
from tests.support.models.model_folders import read_any, write_huggingface, write_tf1
from tests.support.models.variants_of_transformers import GOLDEN

# config.json of google/electra-small-discriminator.
CONFIG = {
    "model_type": "electra",
    "vocab_size": 30522,
    "embedding_size": 128,
    "hidden_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


def drawn(name, shape):
    """The same numbers as golden_transformers_variants/make.py, `drawn`."""
    around = 1.0 if name.endswith("LayerNorm.weight") else 0.0
    return (around + np.random.RandomState(zlib.crc32(name.encode())).normal(0, 0.1, shape)).astype("float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("electra-small-discriminator")
    weights = Architecture("electra", electra_sizes.SMALL.discriminator, 128).weights()
    shapes = {w.huggingface.name: w.stored_shape("huggingface") for w in weights if w.huggingface}
    tensors = {name: drawn(name, shape) for name, shape in shapes.items() if not name.startswith("generator")}
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(CONFIG))
    return directory


def outputs(model):
    golden = np.load(GOLDEN / "electra_small.npz")
    inputs = {name: golden[f"inputs/{name}"] for name in ("input_ids", "input_mask", "segment_ids")}
    real = inputs["input_mask"] == 1
    ours = model({**inputs, "masked_lm_positions": None})
    found = {"logits": ours["discriminator_logits"], "last_layer": ours["sequence_output"]}
    return {name: np.asarray(value)[real] for name, value in found.items()}, {
        name: golden[f"outputs/{name}"][real] for name in found
    }


def test_released_shape_gives_the_outputs_of_transformers(folder, tmp_path):
    read = read_any(str(folder))
    assert (read.family, read.untrained, read.model.backbone.embedding_size) == ("electra", (), 128)
    # 13,549,057 with the head, the paper's 14M.
    assert read.model.count_params() == np.load(GOLDEN / "electra_small.npz")["parameters"]
    ours, theirs = outputs(read.model)
    # 1.35e-5 of logits of 1.2 without AVX-512, below 1e-5 with it: the order of float32's sums through twelve layers.
    for name, bound in {"last_layer": 1e-5, "logits": 2e-5}.items():
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=bound, err_msg=name)
    # What is written back is what was read; a checkpoint of google-research/electra holds the same.
    write_huggingface(read.model, None, str(tmp_path / "hf"))
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "hf"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        np.testing.assert_array_equal(after[name], tensor, err_msg=name)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert {name: config[name] for name in CONFIG} == CONFIG
    write_tf1(read.model, None, str(tmp_path / "tf1"))
    again = read_any(str(tmp_path / "tf1"))
    assert again.model.config == read.model.config
    for ours, theirs in zip(again.model.get_weights(), read.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
