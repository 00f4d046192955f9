"""google-research/bert's checkpoints: `bert_config.json`, `bert_model.ckpt.index` and its data, `vocab.txt`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bert_keras.config import BertConfig
from bert_keras.errors import InputError
from bert_keras.features import VOCABULARY_FILE
from bert_keras.interchange import files, transfer, vocabularies
from bert_keras.interchange.architecture import Architecture
from bert_keras.interchange.names import Family
from bert_keras.interchange.transfer import ReadModel, StoredTensor, Written
from bert_keras.interchange.vocabularies import Tokenizer

if TYPE_CHECKING:
    from bert_keras.interchange.architecture import Model

CONFIG_FILE = "bert_config.json"
CHECKPOINT = "bert_model.ckpt"
_WHOSE = "checkpoints of google-research/bert"
# The optimizer's state, which the original does not restore either.
_TRAINING_STATE = re.compile(r"(^|/)(adam_m|adam_v|global_step)$")


def read_tf1(directory: str) -> ReadModel:
    """Reads a checkpoint of the original, with those of its heads that are there.

    The original's "gelu" is the tanh approximation (FACTS D4). No file of it says `lower_case`.

    Raises:
        InputError: a file is missing or damaged, `vocab.txt` has not a token for each row of the word embeddings, or
            a tensor is missing, mis-shaped or one too many. Names file, tensor, shapes, and what to do.
    """
    config_path = os.path.join(directory, CONFIG_FILE)
    text = files.read_text(config_path)
    try:
        config = BertConfig.from_json(text)
    except (TypeError, ValueError) as error:
        raise InputError(f"{config_path}: {error}") from error
    vocabulary = vocabularies.read_wordpiece(os.path.join(directory, VOCABULARY_FILE), config, CONFIG_FILE)
    prefix = os.path.join(directory, CHECKPOINT)
    index = f"{prefix}.index"
    if not os.path.exists(index):
        raise InputError(f"{index} is not there; name the checkpoint's files {CHECKPOINT}.*")

    import tensorflow as tf

    def stored(name: str, shape: list[int]) -> StoredTensor:
        def read():
            with _damage_named(prefix):
                return reader.get_tensor(name)

        return StoredTensor(name, index, tuple(shape), read)

    with _damage_named(prefix):
        reader = tf.train.load_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    tensors = {name: stored(name, shapes[name]) for name in sorted(shapes) if not _TRAINING_STATE.search(name)}
    architecture = Architecture("bert", config, config.hidden_size)
    model, initialised, _ = transfer.read_model(architecture, "tf1", tensors, index)
    return ReadModel(model, vocabulary, None, initialised)


@contextlib.contextmanager
def _damage_named(prefix: str) -> Iterator[None]:
    """TensorFlow's errors of a checkpoint that cannot be read (IndexError: cut short) as InputError."""
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, RuntimeError, IndexError) as error:
        raise InputError(f"{prefix} is damaged or incomplete ({error}); bring its files again") from error


def write_tf1(model: Model, tokenizer: Tokenizer | None, directory: str, family: Family | None = None) -> Written:
    """Writes a checkpoint that the original takes as `init_checkpoint`, with its `bert_config.json`.

    The original's layer normalisation has an epsilon of 1e-12 whatever the configuration says, and it refuses a
    configuration with `gelu_erf`, which it cannot compute; `read_tf1` takes both.

    Args:
        model: its weights are written as float32.
        tokenizer: the model's; without one no `vocab.txt` is written.

    Raises:
        InputError: the vocabulary has not a token for each row of the word embeddings, or the model is causal or no
            BERT. Nothing is written.
    """
    import tensorflow as tf

    config = transfer.only_bert(model, family, _WHOSE)
    vocabularies.check_tokenizer(tokenizer, config)
    tokenizer = vocabularies.wordpiece(tokenizer, _WHOSE)
    tensors = transfer.tensors_of(model, "tf1")
    with files.staged(directory) as temporary:
        if tokenizer:
            vocabularies.write_vocabulary(temporary, tokenizer)
        files.write_text(temporary, CONFIG_FILE, config.to_json())
        tf.raw_ops.SaveV2(
            prefix=os.path.join(temporary, CHECKPOINT),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
    return Written()
