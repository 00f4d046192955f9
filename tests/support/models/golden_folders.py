"""Hugging Face's folders of the small models that golden_transformers_variants/make.py recorded."""

import json

import numpy as np
from safetensors.numpy import save_file

from tests.support.models.variants_of_transformers import GOLDEN, Golden

SIZES = {"vocab_size": 24, "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 64}
ELECTRA = {"model_type": "electra", "max_position_embeddings": 12, "embedding_size": 12}
MODERN = {"model_type": "modernbert", "max_position_embeddings": 12}
DISENTANGLED = {"relative_attention": True, "position_biased_input": False, "norm_rel_ebd": "layer_norm"}
DISENTANGLED |= {"pos_att_type": "p2c|c2p", "position_buckets": 4}
# Fields of `config.json` beside the sizes, as in make.py.
CONFIGS = {
    "roberta": {"model_type": "roberta", "max_position_embeddings": 14, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "electra_discriminator": ELECTRA,
    "electra_generator": {**ELECTRA, "hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 32},
    "modernbert": {**MODERN, "num_hidden_layers": 4, "intermediate_size": 24, "local_attention": 4},
    "mpnet": {"model_type": "mpnet", "max_position_embeddings": 14, "layer_norm_eps": 1e-5},
    "deberta_v2": {"model_type": "deberta-v2", "max_position_embeddings": 12, **DISENTANGLED},
}


def write_golden(name, directory, **fields):
    """Write the folder, with `fields` in its `config.json`; returns what goes in and comes out."""
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        tensors = {key: arrays[key] for key in arrays.files if "/" not in key}
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps({**SIZES, **CONFIGS[name], **fields}))
    return Golden(name)
