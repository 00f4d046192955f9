"""The initial checkpoint of a fine-tuning: the encoder and the tokenizer of a `ModelFolder`."""

import dataclasses
import hashlib
from collections.abc import Sequence

import keras
from keras import ops

from bert_keras.convert.architecture import Architecture
from bert_keras.convert.families.table import check_algorithm
from bert_keras.convert.formats import read_folder
from bert_keras.convert.model_folder import ModelFolder, Networks, check_tokenizer
from bert_keras.errors import InputError, StageError
from bert_keras.models.config import BertConfig
from bert_keras.notices import notify
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.table import Task

# Rows become tokens by these, whose code names the training, too (`components.code_version`).
from bert_keras.tokenizers import byte_bpe, sentencepiece, wordpiece  # noqa: F401
from bert_keras.tokenizers.protocol import Tokenizer

# Families whose head has dropout before its dense layer, the pooler.
ROBERTAS = ("roberta", "xlm-roberta", "camembert", "mpnet")


def read_init(directory: str, cased: bool | None = None, task: Task | None = None) -> ModelFolder:
    """Read the model of a folder (`read_folder`).

    Of a model that is fine-tuned for a task with the same labels the head is used (`continues`), which a notice says,
    of others only the pooler. The seed of the run draws what is missing, such as a RoBERTa's pooler, the dense layer of
    its classification head. InputError: it cannot be read, or has no vocabulary or another model's.
    """
    folder = read_folder(directory, cased)
    if task is None or not continues(folder, task):
        folder = folder.without_task()
    else:
        notify(f"{directory}: its output layer is trained on: the type and the labels of the task are the same")
    for remark in folder.remarks:
        notify(remark)
    tokenizer = folder.known_tokenizer()
    check_algorithm(folder.family, tokenizer, directory)
    check_tokenizer(tokenizer, folder.config.vocab_size)
    return folder


def init_checkpoint(
    config: BertConfig, tokenizer: Tokenizer, encoder: keras.Model | None = None, family: str = "bert"
) -> ModelFolder:
    """An encoder in memory; None: the task model draws its weights."""
    check_tokenizer(tokenizer, config.vocab_size)
    width = encoder.embedding_size if encoder else config.of_width().hidden_size
    load = (lambda: Networks(encoder)) if encoder else None
    return ModelFolder(Architecture(family, config, width), load, lambda: tokenizer)


def digest_of(init: ModelFolder) -> str:
    """Hash of the encoder and the tokenizer, whichever files they are from."""
    # What pickle makes a tokenizer of: the class and all its arguments.
    size = init.architecture.embedding_size
    described = init.config, init.family, size, init.known_tokenizer().__reduce__()
    digest = hashlib.sha256(repr(described).encode())
    whole = init.model if init.task else init.encoder
    for variable in whole.weights if whole else ():
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
    """StageError for a vocabulary to which more than `max_unknown` of the texts' tokens are [UNK]."""
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


def continues(init: ModelFolder, task: Task) -> bool:
    """Return True if a fine-tuned model has a head for the task: of its type, with its labels in any order."""
    known, settings = init.task, init.settings
    if known is None or settings is None or settings.bilstm or settings.features or task.contrastive:
        return False
    return known.answer_kind == task.answer_kind and sorted(known.labels) == sorted(task.labels)


def with_head_of(settings: TaskSettings, init: ModelFolder) -> TaskSettings:
    """The settings with the initial model's `head`, unless they have one."""
    head = settings.head or (init.settings.head if init.settings else "")
    return dataclasses.replace(settings, head=head)


def initialize_encoder(model: keras.Model, init: ModelFolder, task: Task | None = None) -> None:
    """Assign the weights of the encoder, and of the head if the model `continues` for `task`, to a built task model."""
    model.drops_encoder_output = init.family in ROBERTAS
    encoder = init.encoder
    if encoder is None:
        return
    variables, values = model.backbone.weights, encoder.weights
    has_pooler = encoder.has_pooler and encoder.head == model.backbone.head
    if not has_pooler:
        variables, values = _without_pooler(model.backbone), _without_pooler(encoder)
    for variable, value in zip(variables, values, strict=True):
        variable.assign(ops.convert_to_tensor(value))
    if task and has_pooler and continues(init, task) and not (model.has_bilstm or model.features):
        order = [init.task.labels.index(label) for label in task.labels] if init.task else []
        for variable, value in zip(model.classifier.weights, init.model.classifier.weights, strict=True):
            variable.assign(ops.take(value, order, axis=-1) if order else ops.convert_to_tensor(value))


def _without_pooler(encoder: keras.Model) -> list[keras.Variable]:
    pooler = {variable.path for variable in encoder.pooler.weights}
    return [variable for variable in encoder.weights if variable.path not in pooler]
