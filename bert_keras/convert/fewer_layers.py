"""A model with some of another's layers, or with none: the first weights of a student.

Some: V. Sanh et al. 2019 (arXiv 1910.01108, section 3). None: a static model, a vector for each token, whose mean is a
text's; without training they are the encoder's vectors of tokens alone, less their mean, weighted by frequency
(S. Arora et al. 2017, "A simple but tough-to-beat baseline for sentence embeddings", equation 3). Here V is the
vocabulary, H the width.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from bert_keras.convert.architecture import Architecture
from bert_keras.convert.model_folder import ModelFolder, Networks
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone, pooled
from bert_keras.models.config import BertConfig
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.tasks.sequences import TokenRuns, single_sequences
from bert_keras.tokenizers.protocol import UNUSED, Tokenizer

_LAYER = re.compile(r"/layer_(\d+)/")
# Arora's a.
_RARITY = 1e-3
_TOKENS_AT_ONCE = 1024
# A token between [CLS] and [SEP].
_LENGTH = 3


def with_layers(folder: ModelFolder, layers: Sequence[int]) -> ModelFolder:
    """The model with these of its encoder's layers, counted from 1, in this order; of 0 a static model is made.

    InputError: there are no such layers, all share their weights, or they differ in what they attend to.
    """
    config = folder.config
    where, count = folder.path or "the model", config.num_hidden_layers
    if list(layers) == [0]:
        return _static(folder)
    if not layers or min(layers) < 1 or max(layers) > count:
        raise InputError(f"{where}: has the layers 1 to {count}; --layers is {','.join(map(str, layers))}")
    if config.encoder == "bilm" or config.shared_layers or config.local_attention:
        raise InputError(f"{where}: its layers share weights, or attend to windows by their number: none can be taken")
    if config.norm_place == "pre" and [place for place, layer in enumerate(layers) if layer == 1] != [0]:
        raise InputError(f"{where}: only layer 1 has no norm before its attention; begin with it, and take it once")

    def load() -> Networks:
        networks = folder.networks
        arguments = networks.model.get_config()
        # An ELECTRA's configuration has its encoder's in it.
        fields = arguments["config"].get("discriminator", arguments["config"])
        fields["num_hidden_layers"] = len(layers)
        model = type(networks.model).from_config(arguments)
        model.build()
        values = {variable.path: variable for variable in networks.model.weights}
        for variable in model.weights:
            path = _LAYER.sub(lambda match: f"/layer_{layers[int(match[1])] - 1}/", variable.path, count=1)
            variable.assign(values[path])
        return dataclasses.replace(networks, model=model, generator=None)

    encoder = dataclasses.replace(config, num_hidden_layers=len(layers))
    architecture = dataclasses.replace(folder.architecture, encoder=encoder)
    return dataclasses.replace(folder, architecture=architecture, load=load, generator_fields=None)


def _static(folder: ModelFolder) -> ModelFolder:
    """The static model of an encoder: V vectors of H numbers, those of special tokens 0."""
    tokenizer, config = folder.known_tokenizer(), folder.config
    fields = {"position_embedding": "none", "type_vocab_size": 0, "hidden_dropout_prob": 0.0}
    encoder = BertConfig(
        *(config.vocab_size, config.hidden_size, 0, 1, config.hidden_size),
        max_position_embeddings=config.max_position_embeddings,
        encoder="static",
        **fields,  # type: ignore[arg-type]
    )

    def load() -> Networks:
        model = BertBackbone(encoder, has_pooler=False)
        model.build()
        pooling = folder.embedding.pooling
        model.embeddings.word_embeddings.embeddings.assign(
            _vectors_of_tokens(folder, "mean" if pooling == "none" else pooling, tokenizer)
        )
        return Networks(model)

    return ModelFolder(
        Architecture("static", encoder, config.hidden_size),
        load,
        lambda: tokenizer,
        folder.path,
        embedding=EmbeddingSettings("mean"),
        origin=folder.origin,
        notes=(f"the output layer of {folder.task.name} is left out",) if folder.task else (),
    )


def _vectors_of_tokens(folder: ModelFolder, pooling: str, tokenizer: Tokenizer) -> np.ndarray:
    """float32 [V, H]."""
    special = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id]
    unused = [number for number, token in enumerate(tokenizer.vocabulary) if UNUSED.fullmatch(token)]
    ids = np.setdiff1d(np.arange(folder.config.vocab_size), special + unused)
    runs = TokenRuns(ids.astype(np.int32), np.arange(len(ids)), np.ones(len(ids), np.int64))
    inputs = single_sequences(runs, _LENGTH, "head", tokenizer)
    encoder: Any = folder.encoder
    vectors = np.zeros((folder.config.vocab_size, folder.config.hidden_size), np.float32)
    for first in range(0, len(ids), _TOKENS_AT_ONCE):
        part = {name: array[first : first + _TOKENS_AT_ONCE] for name, array in inputs.items()}
        states = encoder(part, training=False)["sequence_output"]
        mask = part["input_mask"].astype(np.float32)
        vectors[ids[first : first + _TOKENS_AT_ONCE]] = ops.convert_to_numpy(pooled(states, mask, pooling))
    vectors[ids] -= vectors[ids].mean(axis=0)
    frequency = _frequency([tokenizer.token_texts[number].strip().removeprefix("##") for number in ids])
    vectors[ids] *= (_RARITY / (_RARITY + frequency))[:, None]
    return vectors


def _frequency(texts: Sequence[str]) -> np.ndarray:
    """The frequency of each token by Zipf's law, float64, from its place among the words, which are sorted by it."""
    is_word = np.array([len(text) > 1 for text in texts])
    # Single characters are sorted otherwise: ASCII ones count as the first word, others as the last.
    rank = np.cumsum(is_word)
    rank[~is_word] = [1 if text.isascii() else len(texts) for text in texts if len(text) < 2]
    frequency = 1.0 / (rank + 1)
    return frequency / max(1.0, frequency[is_word].sum())
