"""ELECTRA-small and ALBERT in their released shapes compute what `transformers` recorded, and are written as read."""

import json
import zlib

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_keras.convert.architecture import Architecture
from bert_keras.models.config import BertConfig
from tests.support.models import electra_sizes
from tests.support.models.model_folders import read_any, write_huggingface
from tests.support.models.variants_of_transformers import GOLDEN

# Of google/electra-small-discriminator's `config.json`, and of albert/albert-base-v2's.
ELECTRA = {
    **{"model_type": "electra", "architectures": ["ElectraForPreTraining"], "hidden_act": "gelu", "vocab_size": 30522},
    **{"embedding_size": 128, "hidden_size": 256, "intermediate_size": 1024, "max_position_embeddings": 512},
    **{"num_hidden_layers": 12, "num_attention_heads": 4, "type_vocab_size": 2, "layer_norm_eps": 1e-12},
}
ALBERT = {
    **{"model_type": "albert", "architectures": ["AlbertForPreTraining"], "hidden_act": "gelu_new"},
    **{"embedding_size": 128, "num_hidden_groups": 1, "inner_group_num": 1, "vocab_size": 30000},
}
BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12}
LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24}
RELEASED_ALBERT = {
    **{"architectures": ["AlbertForMaskedLM"], "attention_probs_dropout_prob": 0, "classifier_dropout_prob": 0.1},
    **{"gap_size": 0, "hidden_dropout_prob": 0, "max_position_embeddings": 512, "net_structure_type": 0},
    **{"num_memory_blocks": 0, "type_vocab_size": 2},
}
# Our outputs: their names in the file, and the largest difference. ELECTRA's logits of 1.2 are 1.35e-5 off without
# AVX-512, below 1e-5 with it: the order of float32's sums through twelve layers.
OF_ELECTRA = {"sequence_output": ("last_layer", 1e-5), "discriminator_logits": ("logits", 2e-5)}
OF_ALBERT = {"sequence_output": ("last_layer", 1e-5), "mlm_logits": ("logits", 1e-5), "nsp_logits": ("order", 1e-5)}


def albert(layers, width):
    shape = BertConfig.size(layers, width, vocab_size=30000, embedding_width=128, shared_layers=True)
    return Architecture("albert", shape, 128)


# The architecture, fields of `config.json` that are written too, those that are not, the deviation of weights, outputs.
ELECTRA_SMALL = Architecture("electra", electra_sizes.SMALL.discriminator, 128)
SHAPES = {
    "electra_small": (ELECTRA_SMALL, ELECTRA, {}, 0.1, OF_ELECTRA),
    "albert_base": (albert(12, 768), {**ALBERT, **BASE}, RELEASED_ALBERT, 0.02, OF_ALBERT),
    "albert_large": (albert(24, 1024), {**ALBERT, **LARGE}, RELEASED_ALBERT, 0.02, OF_ALBERT),
}


def drawn(name, shape, deviation):
    """The same numbers as golden_transformers_variants/make.py, `drawn`."""
    around = 1.0 if name.lower().endswith("norm.weight") else 0.0
    return (around + np.random.RandomState(zlib.crc32(name.encode())).normal(0, deviation, shape)).astype("float32")


@pytest.mark.parametrize("name", ["electra_small", "albert_base", pytest.param("albert_large", marks=pytest.mark.slow)])
def test_a_released_shape_computes_what_transformers_does_and_is_written_as_read(tmp_path, name):
    architecture, fields, further, deviation, outputs = SHAPES[name]
    golden = np.load(GOLDEN / f"{name}.npz")
    shapes = {w.huggingface.name: w.stored_shape("huggingface") for w in architecture.weights() if w.huggingface}
    tensors = {key: drawn(key, shape, deviation) for key, shape in shapes.items() if not key.startswith("generator")}
    assert sum(tensor.size for tensor in tensors.values()) == np.ravel(golden["parameters"])[0]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**fields, **further}))

    read = read_any(str(tmp_path))
    assert (read.family, read.architecture.embedding_size) == (architecture.family, architecture.embedding_size)
    assert (read.untrained, read.remarks) == ((), ())
    inputs = {key: golden[f"inputs/{key}"] for key in ("input_ids", "input_mask", "segment_ids")}
    real, ours = inputs["input_mask"] == 1, read.model({**inputs, "masked_lm_positions": None})
    for key, (there, bound) in outputs.items():
        theirs = golden[f"outputs/{there}"]
        at = real if theirs.shape[:2] == real.shape else ...
        found = np.asarray(ours[key])[..., : theirs.shape[-1]]  # ALBERT's logits are those of the first 500 tokens
        np.testing.assert_allclose(found[at], theirs[at], rtol=0, atol=bound, err_msg=key)

    write_huggingface(read.model, None, str(tmp_path / "again"))
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == tensors.keys()
    for key, tensor in tensors.items():
        np.testing.assert_array_equal(again[key], tensor, err_msg=key)
    stored = json.loads((tmp_path / "again" / "config.json").read_text())
    assert {key: stored[key] for key in fields} == fields and "shared_layers" not in stored
