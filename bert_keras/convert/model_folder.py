"""A model and its tokenizer, in a folder of any format or in memory."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_keras.convert.architecture import Architecture, architecture_of, backbone_of
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, Part
from bert_keras.saved_model.settings import FAMILY_FIELD, NO_EMBEDDING, ORIGIN_FIELD, EmbeddingSettings

if TYPE_CHECKING:
    import numpy as np

    from bert_keras.models.backbone import BertBackbone
    from bert_keras.models.electra import ElectraGenerator
    from bert_keras.tasks.settings import TaskSettings
    from bert_keras.tasks.table import Task
    from bert_keras.tokenizers.protocol import Tokenizer


@dataclasses.dataclass(frozen=True)
class Networks:
    """The weights of a folder."""

    model: Any  # float32, built: an encoder with the heads of the folder, or a task model
    untrained: tuple[Part, ...] = ()  # the parts of `model` without weights in the folder; theirs are random
    generator: ElectraGenerator | None = None  # of an ELECTRA whose folder has both networks
    remarks: tuple[str, ...] = ()  # parts of the folder that are left out, a sentence each


class Written(NamedTuple):
    """Differences between a written folder and its model."""

    untrained: tuple[Part, ...] = ()  # parts of the folder that the model lacks; they have random weights
    remarks: tuple[str, ...] = ()  # parts of the model that are left out or computed differently, a sentence each


@dataclasses.dataclass(frozen=True, eq=False)
class ModelFolder:
    """A model and its tokenizer. The files' headers are checked; the weights are read when they are first asked for."""

    architecture: Architecture  # family, configuration of the encoder, and width of the embeddings
    load: Callable[[], Networks] | None = None  # reads the weights; None: there are none
    # Makes the tokenizer, None without a vocabulary; InputError if the folder does not say its case.
    make_tokenizer: Callable[[], Tokenizer | None] = lambda: None
    path: str = ""  # the folder, "" in memory
    generator_fields: Mapping[str, Any] | None = None  # of `ElectraConfig`, if an ELECTRA's folder has both networks
    is_generator: bool = False  # whether it is an ELECTRA's generator alone
    task: Task | None = None  # of a fine-tuned model: its task, with the labels; its model then is a task model
    settings: TaskSettings | None = None  # of a fine-tuned model: how rows become features
    embedding: EmbeddingSettings = NO_EMBEDDING  # how a text gets one vector; `none` if the folder does not say it
    max_seq_length: int | None = None  # tokens of a text that a pre-trained model's signatures read; None: all
    head_left_out: str = ""  # of a fine-tuned model whose head is not read: its tensors, and why; one of the notes
    origin: Mapping[str, str] | None = None  # `format` and `name` of another program's folder where the weights began
    notes: tuple[str, ...] = ()  # what is read otherwise than by the folder's own program, a sentence each

    @classmethod
    def in_memory(
        cls,
        model: Any,
        tokenizer: Tokenizer | None = None,
        family: str | None = None,
        untrained: Sequence[Part] = (),
        generator: ElectraGenerator | None = None,
        **fields: Any,
    ) -> ModelFolder:
        """A model that is to be written.

        Args:
            model: built; also a task model, with `task` and `settings`.
            tokenizer: the model's; None: no vocabulary is written.
            family: of an encoder alone; None: a BERT.
            untrained: its parts with random weights.
            generator: of an `ElectraDiscriminator`.

        Raises:
            InputError: the model's class is of another family.
        """
        networks = Networks(model, tuple(untrained), generator)
        return cls(architecture_of(model, family), lambda: networks, lambda: tokenizer, **fields)

    @property
    def family(self) -> str:
        """The name of the family (`families.table.FAMILIES`)."""
        return self.architecture.family

    @property
    def config(self) -> BertConfig:
        """The configuration of the encoder."""
        return self.architecture.encoder

    @functools.cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer; None without a vocabulary."""
        return self.make_tokenizer()

    @functools.cached_property
    def networks(self) -> Networks:
        """The weights, read once."""
        if self.load is None:
            raise InputError("the model has no weights; give the folder of one that has")
        return self.load()

    @property
    def model(self) -> Any:
        """The model: the encoder with the heads of the folder, or a task model."""
        return self.networks.model

    @property
    def generator(self) -> ElectraGenerator | None:
        """The generator of an ELECTRA whose folder has both networks."""
        return self.networks.generator

    @property
    def untrained(self) -> tuple[Part, ...]:
        """The parts of `model` with random weights."""
        return self.networks.untrained

    @property
    def encoder(self) -> BertBackbone | None:
        """The encoder; None without weights."""
        return backbone_of(self.model) if self.load else None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on parts of the folder that are left out or read otherwise; reads the weights."""
        notes = (*self.notes, *filter(None, [self.head_left_out]))
        return (*self.networks.remarks, *notes) if self.load else notes

    def record(self) -> dict[str, Any]:
        """The fields of a pushed folder's `bert_config.json` that say what the model is and where it began."""
        return {FAMILY_FIELD: self.family, **({ORIGIN_FIELD: dict(self.origin)} if self.origin else {})}

    def known_tokenizer(self) -> Tokenizer:
        """The tokenizer; InputError without a vocabulary."""
        if self.tokenizer is None:
            where = self.path or "the model"
            raise InputError(f"{where}: has no vocabulary; put the one that the model was trained with there")
        return self.tokenizer

    def without_task(self) -> ModelFolder:
        """The encoder of a fine-tuned model, with its settings; any other model as it is."""
        if self.task is None or self.settings is None:
            return self
        task, settings = self.task, self.settings
        remarks = () if task.contrastive else (f"the output layer of {task.name} in {self.path} is dropped",)
        has_pooler = task.reads_pooler and not settings.features and settings.head in ("", "tanh")
        untrained: tuple[Part, ...] = () if has_pooler else ("pooler",)

        def load() -> Networks:
            return Networks(self.encoder, untrained, remarks=remarks)

        architecture = dataclasses.replace(self.architecture, head=None, outputs=0)
        return dataclasses.replace(self, architecture=architecture, load=load, task=None)

    def inputs(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """The inputs of `model.predict` for N texts or pairs of texts, int32 [N, T], T of the longest.

        Texts beyond the length that the model reads lose their end. InputError: the folder has no vocabulary.
        """
        from bert_keras.tasks.sequences import TokenRuns, pair_sequences, single_sequences

        tokenizer = self.known_tokenizer()
        positions = self.config.max_position_embeddings
        longest = self.settings.max_seq_length if self.settings else self.max_seq_length or positions
        first = TokenRuns.of(tokenizer, texts)
        if text_pairs is None:
            return single_sequences(first, longest, "head", tokenizer)
        return pair_sequences(first, TokenRuns.of(tokenizer, text_pairs), longest, tokenizer)


def check_tokenizer(tokenizer: Tokenizer | None, vocab_size: int) -> None:
    """Raise InputError if a vocabulary has not the model's size."""
    if tokenizer and len(tokenizer.vocabulary) != vocab_size:
        raise InputError(
            f"the vocabulary has {len(tokenizer.vocabulary)} tokens, but the word embeddings of the model have "
            f"{vocab_size} rows; use the vocabulary that it was trained with"
        )
