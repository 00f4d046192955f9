"""Names of RoBERTa's and ELECTRA's weights in `transformers`; files of golden_transformers_variants/make.py.

Names of a BERT are `bert_keras.convert.weight_map`'.
"""

import re
from pathlib import Path

import numpy as np

from bert_keras.convert import weight_map
from bert_keras.convert.families.table import FAMILIES

GOLDEN = Path(__file__).parent / "golden_transformers_variants"
TOLERANCE = 2e-5


def encoder_names(backbone, prefix):
    """{name: variable} of layers and embeddings; `prefix` stands where a BERT's tensors have `bert.`."""
    config = backbone.config
    table = weight_map.weights(config, FAMILIES["bert"], config.hidden_size)  # of which only the names are used
    stored = {weight.path: weight.huggingface.name for weight in table}
    found = layer_names(backbone.embeddings_project, f"{prefix}embeddings_project")
    for part in (backbone.embeddings, *backbone.encoder_layers):
        for variable in part.weights:
            path = re.search(r"(?:^|/)((?:embeddings|layer_\d+)/.*)", variable.path)[1]
            found[stored[f"bert/{path}"].replace("bert.", prefix)] = variable
    return found


def layer_names(layer, name):
    """{name: variable} of kernel and bias, or scale and shift, of a layer of Keras; of None, nothing."""
    return dict(zip((f"{name}.weight", f"{name}.bias"), layer.weights, strict=True)) if layer else {}


def roberta_names(model):
    """Of a `RobertaForMaskedLM`."""
    return {
        **encoder_names(model.backbone, "roberta."),
        **layer_names(model.mlm_head.dense, "lm_head.dense"),
        **layer_names(model.mlm_head.layer_norm, "lm_head.layer_norm"),
        "lm_head.bias": model.mlm_head.output_bias,
    }


def discriminator_names(model):
    """Of an `ElectraDiscriminator`."""
    return {
        **encoder_names(model.backbone, "electra."),
        **layer_names(model.head_dense, "discriminator_predictions.dense"),
        **layer_names(model.head_output, "discriminator_predictions.dense_prediction"),
    }


def generator_names(model):
    """Of an `ElectraGenerator`."""
    return {
        **encoder_names(model.backbone, "electra."),
        **layer_names(model.mlm_head.dense, "generator_predictions.dense"),
        **layer_names(model.mlm_head.layer_norm, "generator_predictions.LayerNorm"),
        "generator_lm_head.bias": model.mlm_head.output_bias,
    }


def as_here(name, tensor):
    """A tensor of `transformers`, or its gradient, in the layout of the variable here."""
    if name in ("roberta.embeddings.position_embeddings.weight", "mpnet.embeddings.position_embeddings.weight"):
        return tensor[2:]  # the row of padding, and an unused one
    is_table = re.search(r"(embeddings|relative_attention_bias)\.weight$", name)
    return tensor.T if tensor.ndim == 2 and not is_table else tensor


class Golden:
    """Tensors, inputs and outputs of one file."""

    def __init__(self, name):
        self._arrays = dict(np.load(GOLDEN / f"{name}.npz"))
        self.inputs = self._group("inputs/")
        self.outputs = self._group("outputs/")

    def _group(self, prefix):
        found = [key for key in self._arrays if key.startswith(prefix)]
        return {key.removeprefix(prefix): self._arrays.pop(key) for key in found}

    def assign(self, variables):
        """Gives each variable, by name, its tensor; none may be left."""
        assert variables.keys() == self._arrays.keys()
        for name, variable in variables.items():
            variable.assign(as_here(name, self._arrays[name]))

    def assert_close(self, last_layer, logits):
        """At tokens; `transformers` computes other things of padding."""
        real = self.inputs["input_mask"] == 1
        for name, ours in (("last_layer", last_layer), ("logits", logits)):
            theirs = self.outputs[name]
            np.testing.assert_allclose(np.asarray(ours)[real], theirs[real], rtol=0, atol=TOLERANCE, err_msg=name)
