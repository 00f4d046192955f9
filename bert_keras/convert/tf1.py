"""Checkpoints of google-research/bert (`bert_config.json`, `bert_model.ckpt.*`, `vocab.txt`) and of
google-research/electra (`bert_keras.convert.tf1_electra`).
"""

from __future__ import annotations

import contextlib
import glob
import math
import os
import posixpath
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
# Variables of encoders and pre-training heads; others are a task's head, as run_classifier.py's `output_weights`.
_MODEL = re.compile(r"(bert|electra|generator|cls/predictions|cls/seq_relationship|\w+_predictions)/")
# In a checkpoint of TensorFlow 2's objects, whose names are paths of attributes.
_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"


def read_tf1(directory: str) -> ReadModel:
    """Read a checkpoint of the original, with the heads in the file; an ELECTRA as its discriminator and generator.

    BERT's "gelu" is the tanh approximation (modeling.py, `gelu`), ELECTRA's the exact function. None of the files
    records `lower_case`. Not read: the head of a fine-tuned model, and the state of any program's optimizer.

    Args:
        directory: the folder, or the path of one of its checkpoints, without `.index`. Of several in a folder
            `bert_model.ckpt` is read, or the one that the file `checkpoint` names.

    Raises:
        InputError: a file is missing or damaged, the sizes of `vocab.txt` and word embeddings differ, or a tensor is
            missing, mis-shaped or unknown. Names file, tensor, shapes, and what to do.
    """
    outline = outline_tf1(directory)
    if outline.architecture.family == "electra":
        return _read_electra(directory, outline)
    _, prefix = _located(directory)
    tensors, head = _tensors(prefix)
    model, initialised, _ = weight_copy.read_model(outline.architecture, "tf1", tensors, f"{prefix}.index")
    tokens = outline.vocabulary.tokens if outline.vocabulary else None
    remarks = weight_copy.head_left_out(head, prefix)
    return ReadModel(model, tokens, {}, initialised, remarks=remarks, task_head=head)


def outline_tf1(directory: str) -> Outline:
    """Read configuration, vocabulary and the checkpoint's index of a folder; errors as in `read_tf1`."""
    directory, prefix = _located(directory)
    config_path = os.path.join(directory, CONFIG_FILE)
    if not os.path.exists(config_path) and (networks := _electra_networks(prefix)):
        return _outline_electra(directory, *networks)
    text = files.read_text(config_path)
    try:
        config = BertConfig.from_json(text)
    except (TypeError, ValueError) as error:
        raise InputError(f"{config_path}: {error}") from error
    vocabulary = _read_vocabulary(directory, config, CONFIG_FILE)
    architecture = Architecture("bert", config, config.hidden_size)
    weight_copy.check_tensors(architecture, "tf1", _tensors(prefix)[0], f"{prefix}.index")
    return Outline(architecture, vocabulary, {})


def _read_vocabulary(directory: str, config: BertConfig, file: str) -> Vocabulary | None:
    path = os.path.join(directory, VOCABULARY_FILE)
    tokens = vocabulary_files.read_wordpiece(path, config.vocab_size, file)
    return None if tokens is None else Vocabulary(tokens)


def is_checkpoint(path: str) -> bool:
    """True for the path of a checkpoint without the endings of its files."""
    return os.path.isfile(f"{path}.index")


def _located(path: str) -> tuple[str, str]:
    """The folder and the path of the checkpoint that `path`, either of them, stands for."""
    if is_checkpoint(path):
        return os.path.dirname(path) or ".", path
    usual = os.path.join(path, CHECKPOINT)
    return path, usual if is_checkpoint(usual) else _any_prefix(path) or usual


def _electra_networks(prefix: str) -> tuple[str, Network, Network | None] | None:
    """The index of a checkpoint and its networks; None if it is no ELECTRA's."""
    tensors = _tensors(prefix)[0] if is_checkpoint(prefix) else {}
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
            raise InputError(
                f"{directory} has {len(found)} checkpoints and no file `checkpoint`; convert one of them: "
                f"{found[-1].removesuffix('.index')}"
            )
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
    _, prefix = _located(directory)
    networks: Any = _electra_networks(prefix)
    index, *found = networks
    (model, initialised, _), *others = [
        weight_copy.read_model(network.architecture, "tf1", network.tensors, index) for network in found if network
    ]
    tokens = outline.vocabulary.tokens if outline.vocabulary else None
    generator: Any = others[0][0] if others else None
    head = _tensors(prefix)[1]
    further: Any = {"remarks": weight_copy.head_left_out(head, prefix), "task_head": head}
    return ReadModel(model, tokens, {}, initialised, family="electra", generator=generator, **further)


def _tensors(prefix: str) -> tuple[dict[str, StoredTensor], tuple[str, ...]]:
    """The tensors of a checkpoint's model by name, not yet read, and the names of those of a task's head.

    Its data files must be as long as its index says.
    """
    index = f"{prefix}.index"
    if not os.path.exists(index):
        raise InputError(f"{index} is missing; the checkpoint's files must be named {os.path.basename(prefix)}.*")

    files.check_no_pattern(prefix, "rename it")
    import tensorflow as tf

    with _damage_named(prefix):
        reader = tf.train.load_checkpoint(prefix)
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    if _OBJECTS in shapes:
        raise InputError(
            f"{prefix} is a checkpoint of TensorFlow 2, as the TF Model Garden's, which is not read; take the model in "
            "google-research/bert's or Hugging Face's format (transformers 4.40 converts those of Model Garden 2.3 and "
            "before: convert_bert_original_tf2_checkpoint_to_pytorch)"
        )
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

    # A training's numbers, as the step, have no axes. An optimizer's slot is named after its weight: WEIGHT/adam_m.
    weights = [name for name in sorted(shapes) if shapes[name] and posixpath.dirname(name) not in shapes]
    head = tuple(name for name in weights if not _MODEL.match(name))
    return {name: stored(name, shapes[name]) for name in weights if name not in head}, head


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
