"""Checkpoints of google-research/bert (`bert_config.json`, `bert_model.ckpt.*`, `vocab.txt`) and of
google-research/electra (`bert_keras.convert.tf1_electra`).
"""

from __future__ import annotations

import contextlib
import glob
import math
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bert_keras import files
from bert_keras.convert import tf1_electra, weight_copy
from bert_keras.convert.architecture import Architecture, architecture_of, generator_size
from bert_keras.convert.tf1_electra import Network
from bert_keras.convert.weight_copy import Outline, ReadModel, StoredTensor, Written
from bert_keras.convert.weight_map import Family
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.tokenizers import vocabulary_files
from bert_keras.tokenizers.vocabulary_files import VOCABULARY_FILE, Tokenizer, Vocabulary

if TYPE_CHECKING:
    from bert_keras.convert.architecture import Model
    from bert_keras.models.electra import ElectraGenerator

CONFIG_FILE = "bert_config.json"
CHECKPOINT = "bert_model.ckpt"
_WHOSE = "checkpoints of google-research/bert"
# Of an ELECTRA; the file `checkpoint` names it, since the original is given the folder.
_ELECTRA_CHECKPOINT = "electra.ckpt"
# The optimizer's state, which the original does not restore either.
_TRAINING_STATE = re.compile(r"(^|/)(adam_m|adam_v|global_step)$")


def read_tf1(directory: str) -> ReadModel:
    """Read a checkpoint of the original, with the heads in the file; an ELECTRA as its discriminator and generator.

    BERT's "gelu" is the tanh approximation (modeling.py, `gelu`), ELECTRA's the exact function. None of the files
    records `lower_case`.

    Raises:
        InputError: a file is missing or damaged, the sizes of `vocab.txt` and word embeddings differ, or a tensor is
            missing, mis-shaped or unknown. Names file, tensor, shapes, and what to do.
    """
    outline = outline_tf1(directory)
    if outline.architecture.family == "electra":
        return _read_electra(directory, outline)
    prefix = os.path.join(directory, CHECKPOINT)
    model, initialised, _ = weight_copy.read_model(outline.architecture, "tf1", _tensors(prefix), f"{prefix}.index")
    return ReadModel(model, outline.vocabulary.tokens if outline.vocabulary else None, {}, initialised)


def outline_tf1(directory: str) -> Outline:
    """Read configuration, vocabulary and the checkpoint's index of a folder; errors as in `read_tf1`."""
    config_path = os.path.join(directory, CONFIG_FILE)
    if not os.path.exists(config_path) and (networks := _electra_networks(directory)):
        return _outline_electra(directory, *networks)
    text = files.read_text(config_path)
    try:
        config = BertConfig.from_json(text)
    except (TypeError, ValueError) as error:
        raise InputError(f"{config_path}: {error}") from error
    vocabulary = _read_vocabulary(directory, config, CONFIG_FILE)
    architecture, prefix = Architecture("bert", config, config.hidden_size), os.path.join(directory, CHECKPOINT)
    weight_copy.check_tensors(architecture, "tf1", _tensors(prefix), f"{prefix}.index")
    return Outline(architecture, vocabulary, {})


def _read_vocabulary(directory: str, config: BertConfig, file: str) -> Vocabulary | None:
    path = os.path.join(directory, VOCABULARY_FILE)
    tokens = vocabulary_files.read_wordpiece(path, config.vocab_size, file)
    return None if tokens is None else Vocabulary(tokens)


def _electra_networks(directory: str) -> tuple[str, Network, Network | None] | None:
    """The index of the folder's checkpoint and its networks; None if it has no ELECTRA's."""
    prefix = _any_prefix(directory)
    tensors = _tensors(prefix) if prefix else {}
    if tf1_electra.WORD_EMBEDDINGS not in tensors:
        return None
    return f"{prefix}.index", *tf1_electra.networks(tensors, f"{prefix}.index")


def _any_prefix(directory: str) -> str | None:
    """The checkpoint of a folder, which ELECTRA names after the model, or by its step: of several the newest."""
    found = sorted(glob.glob(os.path.join(glob.escape(directory), "*.index")))
    if len(found) > 1:
        import tensorflow as tf

        # Named by the file `checkpoint`.
        newest = tf.train.latest_checkpoint(directory)
        if newest is None:
            raise InputError(f"{directory} has {len(found)} checkpoints and no file `checkpoint`; keep one of them")
        return newest
    return found[0].removesuffix(".index") if found else None


def _outline_electra(directory: str, index: str, discriminator: Network, generator: Network | None) -> Outline:
    for network in filter(None, (discriminator, generator)):
        present = weight_copy.check_tensors(network.architecture, "tf1", network.tensors, index)
    is_generator = generator is None and "masked-LM head" in {weight.part for weight in present}
    size = None
    if generator:
        size = generator_size(generator.architecture, discriminator.architecture, f"{index}: the generator")
    vocabulary = _read_vocabulary(directory, discriminator.architecture.encoder, os.path.basename(index))
    return Outline(discriminator.architecture, vocabulary, {}, size, is_generator)


def _read_electra(directory: str, outline: Outline) -> ReadModel:
    networks: Any = _electra_networks(directory)
    index, *found = networks
    (model, initialised, _), *others = [
        weight_copy.read_model(network.architecture, "tf1", network.tensors, index) for network in found if network
    ]
    tokens = outline.vocabulary.tokens if outline.vocabulary else None
    generator: Any = others[0][0] if others else None
    return ReadModel(model, tokens, {}, initialised, family="electra", generator=generator)


def _tensors(prefix: str) -> dict[str, StoredTensor]:
    """The tensors of a checkpoint by name, not yet read; its data files must be as long as its index says."""
    index = f"{prefix}.index"
    if not os.path.exists(index):
        raise InputError(f"{index} is missing; the checkpoint's files must be named {os.path.basename(prefix)}.*")

    import tensorflow as tf

    with _damage_named(prefix):
        reader = tf.train.load_checkpoint(prefix)
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    # Strings, which are in no checkpoint of a model, have no fixed size.
    needed = sum(math.prod(shape) * types[name].size for name, shape in shapes.items() if types[name] != tf.string)
    found = sum(map(os.path.getsize, glob.glob(f"{glob.escape(prefix)}.data-*")))
    if found < needed:
        raise _damaged(prefix, f"its data files have {found:,} bytes, its index lists {needed:,}")

    def stored(name: str, shape: list[int]) -> StoredTensor:
        def read():
            with _damage_named(prefix):
                return reader.get_tensor(name)

        return StoredTensor(name, index, tuple(shape), read)

    return {name: stored(name, shapes[name]) for name in sorted(shapes) if not _TRAINING_STATE.search(name)}


@contextlib.contextmanager
def _damage_named(prefix: str) -> Iterator[None]:
    """Raise TensorFlow's errors for an unreadable checkpoint (IndexError: truncated) as InputError."""
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, RuntimeError, IndexError) as error:
        raise _damaged(prefix, error) from error


def _damaged(prefix: str, reason: object) -> InputError:
    return InputError(f"{prefix} is damaged or incomplete ({reason}); copy its files again")


def write_tf1(
    model: Model,
    tokenizer: Tokenizer | None,
    directory: str,
    family: Family | None = None,
    generator: ElectraGenerator | None = None,
) -> Written:
    """Write a checkpoint for the original's `init_checkpoint`, of a BERT with its `bert_config.json`.

    The original's layer normalisation always has an epsilon of 1e-12, whatever the configuration, and google-research/
    bert refuses a configuration with `gelu_erf`, which it cannot compute; `read_tf1` accepts both.

    Args:
        model: the model, written as float32.
        tokenizer: the model's tokenizer; None writes no `vocab.txt`.
        family: family of a `BertBackbone`; by default BERT.
        generator: of an `ElectraDiscriminator`, for the same checkpoint.

    Raises:
        InputError: the sizes of vocabulary and word embeddings differ, the model is causal or a RoBERTa, or an ELECTRA
            that google-research/electra would compute differently. Nothing is written.
    """
    import tensorflow as tf

    architecture = architecture_of(model, family)
    config = architecture.encoder
    weight_copy.check_plain(config, _WHOSE)
    if architecture.family != "electra":
        weight_copy.only_bert(model, family, _WHOSE)
    vocabulary_files.check_tokenizer(tokenizer, config.vocab_size)
    tokenizer = vocabulary_files.wordpiece(tokenizer, _WHOSE)
    tensors, name = weight_copy.tensors_of(model, "tf1", architecture.family), CHECKPOINT
    texts = {CONFIG_FILE: config.to_json()}
    if architecture.family == "electra":
        tf1_electra.check_written(config)
        tensors |= tf1_electra.generator_names(weight_copy.tensors_of(generator, "tf1") if generator else {})
        name, texts = _ELECTRA_CHECKPOINT, {"checkpoint": f'model_checkpoint_path: "{_ELECTRA_CHECKPOINT}"\n'}
    with files.staged(directory) as temporary:
        if tokenizer:
            vocabulary_files.write_vocabulary(temporary, tokenizer)
        for file, text in texts.items():
            files.write_text(temporary, file, text)
        tf.raw_ops.SaveV2(
            prefix=os.path.join(temporary, name),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
    left_out = weight_copy.left_out(model, "tf1", architecture.family)
    return Written(remarks=tuple(f"the {part} is dropped: {_WHOSE} have none" for part in left_out))
