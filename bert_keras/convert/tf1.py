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

from bert_keras import files
from bert_keras.convert import tf1_electra, weight_copy
from bert_keras.convert.architecture import Architecture, architecture_of, check_written, generator_fields
from bert_keras.convert.families.family import check_plain
from bert_keras.convert.families.weight import StoredTensor
from bert_keras.convert.model_folder import ModelFolder, Networks, Written
from bert_keras.convert.tf1_electra import Network
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.tokenizers import vocabulary_files
from bert_keras.tokenizers.vocabulary_files import VOCABULARY_FILE

CONFIG_FILE = "bert_config.json"
CHECKPOINT = "bert_model.ckpt"
_WHOSE = "checkpoints of google-research/bert"
# Of an ELECTRA; the file `checkpoint` names it, since the original is given the folder.
_ELECTRA_CHECKPOINT = "electra.ckpt"
# Variables of encoders and pre-training heads; others are a task's head, as run_classifier.py's `output_weights`.
_MODEL = re.compile(r"(bert|electra|generator|cls/predictions|cls/seq_relationship|\w+_predictions)/")
# In a checkpoint of TensorFlow 2's objects, whose names are paths of attributes.
_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"


def read_tf1(directory: str, cased: bool | None = None) -> ModelFolder:
    """Read a checkpoint of the original, with the heads in the file; an ELECTRA as its discriminator and generator.

    BERT's "gelu" is the tanh approximation (modeling.py, `gelu`), ELECTRA's the exact function. None of the files
    records `lower_case`. Not read: the head of a fine-tuned model, and the state of any program's optimizer.

    Args:
        directory: the folder, or the path of one of its checkpoints, without `.index`. Of several in a folder
            `bert_model.ckpt` is read, or the one that the file `checkpoint` names.
        cased: whether the vocabulary keeps case; None: unknown.

    Raises:
        InputError: a file is missing or damaged, the sizes of `vocab.txt` and word embeddings differ, or a tensor is
            missing, mis-shaped or unknown. Names file, tensor, shapes, and what to do.
    """
    directory, prefix = _located(directory)
    config_path, index = os.path.join(directory, CONFIG_FILE), f"{prefix}.index"
    networks = None if os.path.exists(config_path) else _electra_networks(prefix)
    if networks:
        architecture = networks[0].architecture
    else:
        text = files.read_text(config_path)
        try:
            config = BertConfig.from_json(text)
        except (TypeError, ValueError) as error:
            raise InputError(f"{config_path}: {error}") from error
        architecture = Architecture("bert", config, config.hidden_size)
    vocabulary_path = os.path.join(directory, VOCABULARY_FILE)
    names_size = os.path.basename(index) if networks else CONFIG_FILE
    vocabulary = vocabulary_files.read_wordpiece(vocabulary_path, architecture.encoder.vocab_size, names_size)
    tensors, head = _tensors(prefix)
    model, generator = networks or (Network(architecture, tensors), None)
    for network in filter(None, (generator, model)):
        present = weight_copy.check_tensors(network.architecture, "tf1", network.tensors, index)
    has_mask_head = "masked-LM head" in {weight.part for weight in present}
    size = generator_fields(generator.architecture, architecture, f"{index}: the generator") if generator else None

    def load() -> Networks:
        first, *further = (
            weight_copy.read_model(network.architecture, "tf1", network.tensors, index)
            for network in filter(None, (model, generator))
        )
        return Networks(first.model, first.untrained, further[0].model if further else None)

    return ModelFolder(
        architecture,
        load,
        lambda: vocabulary.tokenizer(directory, cased) if vocabulary else None,
        directory,
        generator_fields=size,
        is_generator=architecture.family == "electra" and has_mask_head,
        task_head=head,
        notes=weight_copy.head_left_out(head, prefix),
    )


def is_checkpoint(path: str) -> bool:
    """True for the path of a checkpoint without the endings of its files."""
    return os.path.isfile(f"{path}.index")


def _located(path: str) -> tuple[str, str]:
    """The folder and the path of the checkpoint that `path`, either of them, stands for."""
    if is_checkpoint(path):
        return os.path.dirname(path) or ".", path
    usual = os.path.join(path, CHECKPOINT)
    return path, usual if is_checkpoint(usual) else _any_prefix(path) or usual


def _electra_networks(prefix: str) -> tuple[Network, Network | None] | None:
    """The discriminator and the generator of a checkpoint; None if it is no ELECTRA's."""
    tensors = _tensors(prefix)[0] if is_checkpoint(prefix) else {}
    return tf1_electra.networks(tensors, f"{prefix}.index") if tf1_electra.WORD_EMBEDDINGS in tensors else None


def _any_prefix(directory: str) -> str | None:
    """The checkpoint of a folder, which ELECTRA names after the model, or by its step: of several the newest."""
    indexes = sorted(glob.glob(os.path.join(glob.escape(directory), "*.index")))
    if len(indexes) > 1:
        import tensorflow as tf

        # Named by the file `checkpoint`.
        newest = tf.train.latest_checkpoint(directory)
        if newest is None:
            raise InputError(
                f"{directory} has {len(indexes)} checkpoints and no file `checkpoint`; convert one of them: "
                f"{indexes[-1].removesuffix('.index')}"
            )
        return newest
    return indexes[0].removesuffix(".index") if indexes else None


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
    size = sum(map(os.path.getsize, glob.glob(f"{glob.escape(prefix)}.data-*")))
    if size < needed:
        raise _damaged(prefix, f"its data files have {size:,} bytes, its index lists {needed:,}")

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


def write_tf1(folder: ModelFolder, directory: str) -> Written:
    """Write a checkpoint for the original's `init_checkpoint`, of a BERT with its `bert_config.json`.

    The original's layer normalisation always has an epsilon of 1e-12, whatever the configuration, and google-research/
    bert refuses a configuration with `gelu_erf`, which it cannot compute; `read_tf1` accepts both.

    Raises:
        InputError: the sizes of vocabulary and word embeddings differ, the model is causal or a RoBERTa, or an ELECTRA
            that google-research/electra would compute differently. Nothing is written.
    """
    import tensorflow as tf

    model = folder.model
    architecture = architecture_of(model, folder.family)
    config = architecture.encoder
    check_written(architecture)
    check_plain(config, _WHOSE)
    if not architecture.row.in_tf1:
        raise InputError(f"{_WHOSE} cannot hold a model of {architecture.title}; write it with --to hf")
    vocabulary_files.check_tokenizer(folder.tokenizer, config.vocab_size)
    tokenizer = vocabulary_files.wordpiece(folder.tokenizer, _WHOSE)
    tensors, name = weight_copy.tensors_of(model, "tf1", architecture.family), CHECKPOINT
    texts = {CONFIG_FILE: config.to_json()}
    if architecture.family == "electra":
        tf1_electra.check_written(config)
        tensors |= tf1_electra.generator_names(
            weight_copy.tensors_of(folder.generator, "tf1") if folder.generator else {}
        )
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
