"""A model with some of another's layers, the first weights of a student (V. Sanh et al. 2019, arXiv 1910.01108)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from bert_keras.convert.model_folder import ModelFolder, Networks
from bert_keras.errors import InputError

_LAYER = re.compile(r"/layer_(\d+)/")


def with_layers(folder: ModelFolder, layers: Sequence[int]) -> ModelFolder:
    """The model with these of its encoder's layers, counted from 1, in this order; all else stays.

    Raises:
        InputError: there are no such layers, all share their weights, or they differ in what they attend to.
    """
    config = folder.config
    where, count = folder.path or "the model", config.num_hidden_layers
    if not layers or min(layers) < 1 or max(layers) > count:
        raise InputError(f"{where}: has the layers 1 to {count}; --layers is {','.join(map(str, layers))}")
    if config.encoder == "bilm" or config.shared_layers or config.local_attention:
        raise InputError(f"{where}: its layers share weights, or attend to windows by their number: none can be taken")

    def load() -> Networks:
        networks = folder.networks
        arguments = networks.model.get_config()
        model = type(networks.model).from_config(
            {**arguments, "config": {**arguments["config"], "num_hidden_layers": len(layers)}}
        )
        model.build()
        values = {variable.path: variable for variable in networks.model.weights}
        for variable in model.weights:
            path = _LAYER.sub(lambda match: f"/layer_{layers[int(match[1])] - 1}/", variable.path, count=1)
            variable.assign(values[path])
        return dataclasses.replace(networks, model=model, generator=None)

    encoder = dataclasses.replace(config, num_hidden_layers=len(layers))
    architecture = dataclasses.replace(folder.architecture, encoder=encoder)
    return dataclasses.replace(folder, architecture=architecture, load=load, generator_fields=None)
