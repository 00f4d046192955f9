"""A model and its tokenizer from a folder, whichever program wrote it, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import keras
import numpy as np

from bert_keras.convert.architecture import backbone_of
from bert_keras.convert.detect import WRITERS, read_any, tokenizer_of, write_any
from bert_keras.convert.weight_map import Family
from bert_keras.errors import InputError
from bert_keras.models.config import Part
from bert_keras.models.electra import ElectraGenerator
from bert_keras.notices import notify
from bert_keras.saved_model.settings import NO_EMBEDDING, EmbeddingSettings, ExportSettings
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks.sequences import TokenRuns, pair_sequences, single_sequences
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.vocabulary_files import Tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model and its tokenizer.

    Attributes:
        model: float32, built. Of a fine-tuned model of this project the task model, else the encoder with the
            pre-training heads of the folder: `BertForPreTraining`, `BertBackbone`, ...
        tokenizer: None: the folder has no vocabulary.
        family: which model the encoder is.
        untrained: the parts of the model that the folder does not hold; their weights are drawn.
        task: of a fine-tuned model its task, with the labels; else None.
        settings: of a fine-tuned model: how rows become features.
        generator: of an ELECTRA whose folder has both networks.
        embedding: how texts get one vector, which `export` writes as the signature `embed`.
        max_seq_length: as in `ReadModel`.
    """

    model: keras.Model
    tokenizer: Tokenizer | None
    family: Family = "bert"
    untrained: tuple[Part, ...] = ()
    task: Task | None = None
    settings: TaskSettings | None = None
    generator: ElectraGenerator | None = None
    embedding: EmbeddingSettings = NO_EMBEDDING
    max_seq_length: int | None = None

    def inputs(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """The inputs of `model.predict` for N texts or pairs of texts, int32 [N, T], T of the longest.

        Texts beyond the length that the model reads lose their end.

        Raises:
            InputError: the folder has no vocabulary.
        """
        if self.tokenizer is None:
            raise InputError("the model has no vocabulary; put the one that it was trained with into its folder")
        positions = backbone_of(self.model).config.max_position_embeddings
        longest = self.settings.max_seq_length if self.settings else self.max_seq_length or positions
        first = TokenRuns.of(self.tokenizer, texts)
        if text_pairs is None:
            return single_sequences(first, longest, "head", self.tokenizer)
        return pair_sequences(first, TokenRuns.of(self.tokenizer, text_pairs), longest, self.tokenizer)


def from_checkpoint(directory: str, cased: bool | None = None) -> Checkpoint:
    """Read a folder of google-research/bert, Hugging Face, keras-hub or this project.

    Args:
        directory: the folder.
        cased: whether the vocabulary keeps case; None: as the folder says.

    Raises:
        InputError: the folder has no model that can be read; names the file and the reason.
    """
    found = read_any(directory)
    for remark in () if found.fine_tuned else found.remarks:
        notify(remark)
    tokenizer = tokenizer_of(found, directory, cased)
    if found.fine_tuned:
        own, settings = found.fine_tuned[0], found.fine_tuned[1:]
        return Checkpoint(own, tokenizer, found.family, (), *settings, embedding=found.embedding)
    read = Checkpoint(found.model, tokenizer, found.family, found.initialised, generator=found.generator)
    return dataclasses.replace(read, embedding=found.embedding, max_seq_length=found.max_seq_length)


def export(checkpoint: Checkpoint, directory: str, to: str = "bert-tfx") -> None:
    """Write a model and its tokenizer.

    Args:
        checkpoint: what to write.
        directory: a new or empty folder.
        to: `bert-tfx`, a SavedModel that takes raw text, with the weights; for a pre-trained model also `tf1`, `hf` or
            `keras-hub`.

    Raises:
        InputError: the format cannot hold the model.
    """
    if to not in WRITERS:
        raise InputError(f"{to}: no such format; there are {', '.join(WRITERS)}")
    if checkpoint.task is None:
        found = checkpoint.family, checkpoint.untrained, checkpoint.generator, checkpoint.embedding
        write_any(to, checkpoint.model, checkpoint.tokenizer, directory, *found, checkpoint.max_seq_length)
        return
    if to != "bert-tfx" or checkpoint.settings is None or checkpoint.tokenizer is None:
        raise InputError(f"{to} has no place for a model of {checkpoint.task.name}; write it as bert-tfx")
    settings = ExportSettings(embedding=checkpoint.embedding)
    export_task_model(checkpoint.model, checkpoint.task, checkpoint.settings, checkpoint.tokenizer, directory, settings)
