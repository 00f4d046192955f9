"""google-research/electra's checkpoints: both networks in one, `vocab.txt`, and no file of the configuration.

    electra/embeddings/...          the embeddings of both networks, which may be narrower than their encoders
    electra/embeddings_project/...  only if they are: a dense layer to the encoder's width; the generator's own likewise
    electra/encoder/layer_0/...     the discriminator
    discriminator_predictions/...   its head: `dense`, `dense_1`
    generator/encoder/layer_0/...   the generator
    generator_predictions/...       its head: `dense`, `LayerNorm`, `output_bias`

(`run_pretraining.py`, `PretrainingModel`; `model/modeling.py`, `BertModel`.)
"""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from bert_keras.convert.architecture import Architecture
from bert_keras.convert.families.weight import StoredTensor
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig

_DISCRIMINATOR, _GENERATOR = "electra/", "generator/"
_EMBEDDINGS = "electra/embeddings/"


@dataclasses.dataclass(frozen=True)
class Network:
    """One network of a checkpoint: its architecture, and its tensors under the names that the discriminator's have."""

    architecture: Architecture
    tensors: Mapping[str, StoredTensor]


def networks(stored: Mapping[str, StoredTensor], index: str, num_heads: int) -> tuple[Network, Network | None] | None:
    """The discriminator of a checkpoint, and its generator or None; or a BERT with `num_heads`; None of another model.

    InputError: a tensor that tells a size is missing, or the generator has embeddings of its own.
    """
    if num_heads:
        return Network(_architecture(stored, "bert/", index, num_heads), stored), None
    if f"{_EMBEDDINGS}word_embeddings" not in stored:
        return None
    generator = {n: tensor for n, tensor in stored.items() if n.startswith((_GENERATOR, "generator_predictions/"))}
    architecture = _architecture(stored, _DISCRIMINATOR, index)
    if not any(name.startswith(_GENERATOR) for name in generator):
        return Network(architecture, stored), None  # trained without one: the encoder has this head, too
    if own := sorted(name for name in generator if name.startswith(f"{_GENERATOR}embeddings/")):
        raise InputError(
            f"{index}: the generator has embeddings of its own ({own[0]}); only an ELECTRA whose networks share them, "
            "as the published ones do, is read"
        )
    shared = {name: stored[name] for name in stored if name.startswith(_EMBEDDINGS)}
    renamed = {re.sub(f"^{_GENERATOR}", _DISCRIMINATOR, name): tensor for name, tensor in generator.items()}
    discriminator = {name: tensor for name, tensor in stored.items() if name not in generator}
    return (
        Network(architecture, discriminator),
        Network(_architecture(stored, _GENERATOR, index), shared | renamed),
    )


def generator_names(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a generator under its names beside a discriminator, without the embeddings that both share."""
    unshared = {name: value for name, value in tensors.items() if not name.startswith(_EMBEDDINGS)}
    return {re.sub(f"^{_DISCRIMINATOR}", _GENERATOR, name): value for name, value in unshared.items()}


def check_written(encoder: BertConfig) -> None:
    """Raise InputError for what no checkpoint tells, so that the original would compute another function."""
    heads = max(1, encoder.hidden_size // 64)
    for name, theirs in (("num_attention_heads", heads), ("hidden_act", "gelu_erf"), ("layer_norm_eps", 1e-12)):
        if (mine := getattr(encoder, name)) != theirs:
            raise InputError(
                f"model.{name} is {mine}, but google-research/electra computes with {theirs} and stores none: write "
                "the model with --to hf"
            )


def _architecture(stored: Mapping[str, StoredTensor], prefix: str, index: str, num_heads: int = 0) -> Architecture:
    """The sizes of an ELECTRA's network, or with `num_heads` those of a BERT, as its tensors tell them."""
    # An ELECTRA's heads are 64 wide (`util/training_utils.py`, `get_bert_config`), its gelu is exact (`modeling.py`).
    family, embeddings = ("bert", "bert/embeddings/") if num_heads else ("electra", _EMBEDDINGS)

    def shape(name: str) -> tuple[int, ...]:
        if name not in stored:
            raise InputError(f"{index}: the tensor {name} is missing; is the checkpoint complete?")
        if len(stored[name].shape) != 2:
            raise InputError(f"{index}: the tensor {stored[name]} must have two axes")
        return stored[name].shape

    layers = {name.split("/")[2] for name in stored if name.startswith(f"{prefix}encoder/layer_")}
    vocab_size, embedding_size = shape(f"{embeddings}word_embeddings")
    hidden_size, intermediate_size = shape(f"{prefix}encoder/layer_0/intermediate/dense/kernel")
    if num_heads and embedding_size != hidden_size:
        raise InputError(
            f"{index}: its embeddings have width {embedding_size}, its encoder {hidden_size}; of the TF Model Garden "
            "and TF Hub only BERT is read, no ELECTRA or ALBERT: take the model in Hugging Face's format"
        )
    try:
        encoder = BertConfig(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_hidden_layers=len(layers),
            num_attention_heads=num_heads or max(1, hidden_size // 64),
            intermediate_size=intermediate_size,
            max_position_embeddings=shape(f"{embeddings}position_embeddings")[0],
            type_vocab_size=shape(f"{embeddings}token_type_embeddings")[0],
            hidden_act="gelu_tanh" if num_heads else "gelu_erf",
        )
    except ValueError as error:
        raise InputError(f"{index}: {error}") from error
    return Architecture(family, encoder, embedding_size)
