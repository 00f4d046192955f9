"""The initial checkpoint of a fine-tuning: an encoder and its vocabulary."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import keras
from keras import ops

from bert_keras.convert.architecture import FAMILY_NAMES, backbone_of, has_vocabulary
from bert_keras.convert.detect import read_any, tokenizer_of
from bert_keras.convert.weight_map import Family
from bert_keras.errors import InputError, StageError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.bilm import BiLMBackbone
from bert_keras.models.config import BertConfig
from bert_keras.notices import notify
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, check_order
from bert_keras.tokenizers.protocol import Tokenizer
from bert_keras.tokenizers.wordpiece import BertTokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class InitCheckpoint:
    """An encoder to fine-tune.

    Attributes:
        config: architecture of the encoder.
        tokenizer: its tokenizer.
        backbone: its weights; None: random initialisation. A missing pooler is initialised at random too.
        family: family of the model; a RoBERTa gets RoBERTa's classification head.
    """

    config: BertConfig
    tokenizer: Tokenizer
    backbone: BertBackbone | BiLMBackbone | None = None
    family: Family = "bert"

    def __post_init__(self) -> None:
        if len(self.tokenizer.vocabulary) != self.config.vocab_size:
            raise InputError(
                f"the vocabulary has {len(self.tokenizer.vocabulary)} tokens, the model "
                f"model.vocab_size={self.config.vocab_size}; give the vocabulary that it was trained with"
            )

    @classmethod
    def read(cls, directory: str, cased: bool | None = None) -> InitCheckpoint:
        """Read the encoder of a folder: google-research/bert's, Hugging Face's, keras-hub's, or a pushed one.

        The model is a BERT, SpanBERT, left-to-right model, RoBERTa, ELECTRA or biLM. Of the heads only the pooler is
        kept; a missing one is initialised by the seed of the run, as RoBERTa's, which is the dense layer of its
        classification head.

        Args:
            cased: whether the vocabulary keeps case; None: as recorded in the folder.

        Raises:
            InputError: it cannot be read, has no vocabulary or another model's, or does not record whether that is
                lower-cased.
        """
        source = read_any(directory)
        for remark in source.remarks:
            notify(remark)
        tokenizer = tokenizer_of(source, directory, cased)
        if tokenizer is None:
            raise InputError(f"{directory}: has no vocabulary; put the one that the model was trained with there")
        if not has_vocabulary(source.family, byte_bpe=isinstance(tokenizer, ByteBpeTokenizer)):
            raise InputError(
                f"{directory}: is a {FAMILY_NAMES[source.family]} with a vocabulary of "
                f"{'word pieces' if isinstance(tokenizer, BertTokenizer) else 'byte-level BPE'}; a RoBERTa is "
                "fine-tuned with byte-level BPE (vocab.json and merges.txt), all others with word pieces (vocab.txt)"
            )
        if isinstance(tokenizer, ByteBpeTokenizer):
            try:
                check_order(tokenizer.merges)
            except ValueError as error:
                raise InputError(f"{directory}: {error}") from error
        backbone = backbone_of(source.model)
        return cls(backbone.config, tokenizer, backbone, source.family)

    @property
    def embedding_size(self) -> int | None:
        """The width of the embeddings, which is not the encoder's in ELECTRA-small; None: the encoder's."""
        return self.backbone.embedding_size if self.backbone else None

    @property
    def digest(self) -> str:
        """Hash of the encoder and the tokenizer, whichever files they are from."""
        # What pickle makes a tokenizer of: the class and all its arguments.
        described = self.config, self.family, self.embedding_size, self.tokenizer.__reduce__()
        digest = hashlib.sha256(repr(described).encode())
        for variable in self.backbone.weights if self.backbone else ():
            digest.update(f"\0{variable.shape}\0".encode() + ops.convert_to_numpy(variable).tobytes())
        return digest.hexdigest()

    def check_reads(self, settings: TaskSettings, task: Task, config: FineTuningConfig) -> None:
        """Raise InputError if sequences may be longer than the encoder's positions, or a frozen encoder would learn."""
        if self.config.encoder == "bilm" or settings.features:
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
        if settings.max_seq_length > self.config.max_position_embeddings:
            raise InputError(
                f"task.max_seq_length is {settings.max_seq_length}, but the model has positions for "
                f"{self.config.max_position_embeddings} tokens; give at most that"
            )

    def check_knows(self, rows: Sequence[TaskRow], max_unknown: float) -> None:
        """Refuse a vocabulary that does not know the language of the texts.

        Args:
            max_unknown: maximum share of [UNK] tokens.

        Raises:
            StageError: there are more.
        """
        values = (value for row in rows for value in row.inputs.values())
        ids, _ = self.tokenizer.encode([t for value in values for t in ([value] if isinstance(value, str) else value)])
        share = float((ids == self.tokenizer.unk_id).mean()) if len(ids) else 0.0
        if share > max_unknown:
            raise StageError(
                f"{share:.1%} of the pieces of {len(rows):,} rows are [UNK] in the vocabulary of the first model, "
                f"at most {max_unknown:.1%} are allowed (data.max_unknown_fraction): give a model of the texts' "
                "language with --init, or allow more"
            )

    def initialize(self, model: keras.Model) -> None:
        """Assign these weights to the encoder of a built task model; its seeds stay its own."""
        model.drops_encoder_output = self.family == "roberta"
        if self.backbone is None:
            return
        variables = model.backbone.weights
        if not self.backbone.has_pooler:
            drawn = {variable.path for variable in model.backbone.pooler.weights}
            variables = [variable for variable in variables if variable.path not in drawn]
        for variable, value in zip(variables, self.backbone.weights, strict=True):
            variable.assign(ops.convert_to_tensor(value))
