"""The initial checkpoint of a fine-tuning: the encoder and the tokenizer of a `ModelFolder`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import keras
from keras import ops

from bert_keras.convert.architecture import Architecture
from bert_keras.convert.families.table import check_algorithm
from bert_keras.convert.formats import read_folder
from bert_keras.convert.model_folder import ModelFolder, Networks
from bert_keras.errors import InputError, StageError
from bert_keras.models.config import BertConfig
from bert_keras.notices import notify
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.table import Task

# Rows become tokens by these, whose code names the training, too (`components.code_version`).
from bert_keras.tokenizers import byte_bpe, sentencepiece, wordpiece  # noqa: F401
from bert_keras.tokenizers.protocol import Tokenizer


def read_init(directory: str, cased: bool | None = None) -> ModelFolder:
    """Read the encoder of a folder: google-research/bert's, Hugging Face's, keras-hub's, or a pushed one.

    Of the heads only the pooler is used. The seed of the run draws a missing one, and RoBERTa's, which is the dense
    layer of its classification head.

    Args:
        directory: the folder.
        cased: whether the vocabulary keeps case; None: as recorded in the folder.

    Raises:
        InputError: it cannot be read, has no vocabulary or another model's, or does not record whether that is
            lower-cased.
    """
    folder = read_folder(directory, cased).without_task()
    for remark in folder.remarks:
        notify(remark)
    tokenizer = folder.known_tokenizer()
    check_algorithm(folder.family, tokenizer, directory)
    check_size(folder.config, tokenizer)
    return folder


def init_checkpoint(
    config: BertConfig, tokenizer: Tokenizer, encoder: keras.Model | None = None, family: str = "bert"
) -> ModelFolder:
    """An encoder in memory; None: the task model draws its weights.

    Raises:
        InputError: the vocabulary has not the encoder's size.
    """
    check_size(config, tokenizer)
    width = encoder.embedding_size if encoder else config.of_width().hidden_size
    load = (lambda: Networks(encoder)) if encoder else None
    return ModelFolder(Architecture(family, config, width), load, lambda: tokenizer)


def check_size(config: BertConfig, tokenizer: Tokenizer) -> None:
    """Raise InputError if a vocabulary has not the model's size."""
    if len(tokenizer.vocabulary) != config.vocab_size:
        raise InputError(
            f"the vocabulary has {len(tokenizer.vocabulary)} tokens, the model model.vocab_size={config.vocab_size}; "
            "give the vocabulary that it was trained with"
        )


def digest_of(init: ModelFolder) -> str:
    """Hash of the encoder and the tokenizer, whichever files they are from."""
    # What pickle makes a tokenizer of: the class and all its arguments.
    size = init.architecture.embedding_size
    described = init.config, init.family, size, init.known_tokenizer().__reduce__()
    digest = hashlib.sha256(repr(described).encode())
    for variable in init.encoder.weights if init.encoder else ():
        digest.update(f"\0{variable.shape}\0".encode() + ops.convert_to_numpy(variable).tobytes())
    return digest.hexdigest()


def check_reads(init: ModelFolder, settings: TaskSettings, task: Task, config: FineTuningConfig) -> None:
    """Raise InputError if sequences may be longer than the encoder's positions, or a frozen encoder would learn."""
    if init.config.encoder == "bilm" or settings.features:
        for name, trains in (
            (task.name, task.contrastive),
            ("task.bilstm", settings.bilstm),
            ("training.layer_decay", config.layer_decay != 1),
        ):
            if trains:
                raise InputError(
                    f"{name}: trains the encoder, but this one is frozen, as a biLM (ELMo) always is and any is "
                    "with task.features: leave it out, or give another initial model"
                )
    if settings.max_seq_length > init.config.max_position_embeddings:
        raise InputError(
            f"task.max_seq_length is {settings.max_seq_length}, but the model has positions for "
            f"{init.config.max_position_embeddings} tokens; give at most that"
        )


def check_knows(init: ModelFolder, rows: Sequence[TaskRow], max_unknown: float) -> None:
    """Refuse a vocabulary that does not know the language of the texts.

    Args:
        init: the initial checkpoint.
        rows: the texts.
        max_unknown: maximum share of [UNK] tokens.

    Raises:
        StageError: there are more.
    """
    tokenizer = init.known_tokenizer()
    values = (value for row in rows for value in row.inputs.values())
    ids, _ = tokenizer.encode([t for value in values for t in ([value] if isinstance(value, str) else value)])
    share = float((ids == tokenizer.unk_id).mean()) if len(ids) else 0.0
    if share > max_unknown:
        raise StageError(
            f"{share:.1%} of the pieces of {len(rows):,} rows are [UNK] in the vocabulary of the first model, "
            f"at most {max_unknown:.1%} are allowed (data.max_unknown_fraction): give a model of the texts' "
            "language with --init, or allow more"
        )


def initialize_encoder(model: keras.Model, init: ModelFolder) -> None:
    """Assign the encoder's weights to that of a built task model; its seeds stay its own."""
    model.drops_encoder_output = init.family == "roberta"
    encoder = init.encoder
    if encoder is None:
        return
    variables = model.backbone.weights
    if not encoder.has_pooler:
        untrained = {variable.path for variable in model.backbone.pooler.weights}
        variables = [variable for variable in variables if variable.path not in untrained]
    for variable, value in zip(variables, encoder.weights, strict=True):
        variable.assign(ops.convert_to_tensor(value))
