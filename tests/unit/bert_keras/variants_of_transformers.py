"""What golden_transformers_variants/make.py wrote, and how its tensors become weights here."""

import re
from pathlib import Path

import numpy as np

from bert_keras.interchange import names

GOLDEN = Path(__file__).parent / "golden_transformers_variants"
TOLERANCE = 2e-5


class Golden:
    """Tensors, inputs and outputs of one file; `unused` are the tensors that were not yet asked for."""

    def __init__(self, name):
        self._arrays = dict(np.load(GOLDEN / f"{name}.npz"))
        self.inputs = self._group("inputs/")
        self.outputs = self._group("outputs/")
        self.unused = set(self._arrays)

    def _group(self, prefix):
        found = [key for key in self._arrays if key.startswith(prefix)]
        return {key.removeprefix(prefix): self._arrays.pop(key) for key in found}

    def tensor(self, name):
        self.unused.discard(name)
        return self._arrays[name]

    def assign(self, layer, name):
        """The kernel and bias, or scale and shift, of a layer of Keras."""
        weight = self.tensor(f"{name}.weight")
        layer.set_weights([weight.T if weight.ndim == 2 else weight, self.tensor(f"{name}.bias")])

    def assign_encoder(self, backbone, prefix, positions_of_file=lambda table: table):
        """Layers and embeddings; `prefix` stands where a BERT's tensors have `bert.`."""
        paths = {weight.path: weight for weight in names.weights(backbone.config) if weight.part == "encoder"}
        parts = {"embeddings": backbone.embeddings}
        parts |= {f"layer_{i}": layer for i, layer in enumerate(backbone.encoder_layers)}
        for part, layer in parts.items():
            for variable in layer.weights:
                path = re.search(rf"(^|/)({part}/.*)", variable.path)[2]
                name, transposed = paths[f"bert/{path}"].huggingface
                value = self.tensor(name.replace("bert.", prefix))
                value = positions_of_file(value) if "position_embeddings" in name else value
                variable.assign(value.T if transposed else value)

    def assert_close(self, last_layer, logits):
        """At tokens; `transformers` computes other things of padding."""
        real = self.inputs["input_mask"] == 1
        for name, ours in (("last_layer", last_layer), ("logits", logits)):
            theirs = self.outputs[name]
            np.testing.assert_allclose(np.asarray(ours)[real], theirs[real], rtol=0, atol=TOLERANCE, err_msg=name)
