"""What fine-tuning starts from: an encoder and its vocabulary."""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from bert_keras.backbone import BertBackbone
from bert_keras.byte_bpe import ByteBpeTokenizer, check_order
from bert_keras.config import BertConfig
from bert_keras.errors import InputError
from bert_keras.interchange.any_format import read_any, tokenizer_of
from bert_keras.interchange.architecture import FAMILY_NAMES, backbone_of
from bert_keras.interchange.names import Family
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tokenization import Tokenizer
from bert_keras.tokenizer import BertTokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class Start:
    """An encoder to be fine-tuned.

    Attributes:
        config: its shape.
        tokenizer: its vocabulary.
        backbone: its weights; None: they are drawn, as for a new model. A pooler that it has not is drawn too.
        family: what it is; of RoBERTa the head of a text's tasks is RoBERTa's.
    """

    config: BertConfig
    tokenizer: Tokenizer
    backbone: BertBackbone | None = None
    family: Family = "bert"

    def __post_init__(self) -> None:
        if len(self.tokenizer.vocabulary) != self.config.vocab_size:
            raise InputError(
                f"the vocabulary has {len(self.tokenizer.vocabulary)} tokens, the model "
                f"model.vocab_size={self.config.vocab_size}; give the vocabulary that it was trained with"
            )

    def check_reads(self, settings: TaskSettings) -> None:
        """InputError if sequences may be longer than the encoder can read."""
        if settings.max_seq_length > self.config.max_position_embeddings:
            raise InputError(
                f"task.max_seq_length is {settings.max_seq_length}, but the model has positions for "
                f"{self.config.max_position_embeddings} tokens; give at most that"
            )

    def initialize(self, model: keras.Model) -> None:
        """Gives the encoder of a built task model these weights; its seeds stay its own."""
        model.drops_encoder_output = self.family == "roberta"
        if self.backbone is None:
            return
        variables = model.backbone.weights
        if not self.backbone.has_pooler:
            drawn = {variable.path for variable in model.backbone.pooler.weights}
            variables = [variable for variable in variables if variable.path not in drawn]
        for variable, value in zip(variables, self.backbone.weights, strict=True):
            variable.assign(ops.convert_to_tensor(value))


def read_start(directory: str, cased: bool | None = None) -> Start:
    """The encoder of a folder: google-research/bert's, Hugging Face's, keras-hub's, or one that was pushed.

    A BERT's, SpanBERT's or left-to-right model's, a RoBERTa's, or an ELECTRA's whose embeddings are as wide as its
    encoder: then it has the weights of a BERT. Heads are left behind, but for the pooler; one that the folder does not
    hold is drawn by the seed of the run, as RoBERTa's, which is the dense layer of its classification head.

    Args:
        directory: the folder.
        cased: whether the vocabulary keeps case; None: as the folder says.

    Raises:
        InputError: it cannot be read, has no vocabulary or another model's, or does not say whether that is
            lower-cased.
    """
    found = read_any(directory)
    tokenizer = tokenizer_of(found, directory, cased)
    if tokenizer is None:
        raise InputError(f"{directory}: has no vocabulary; put the one that the model was trained with there")
    if isinstance(tokenizer, ByteBpeTokenizer) != (found.family == "roberta"):
        raise InputError(
            f"{directory}: is a {FAMILY_NAMES[found.family]} with a vocabulary of "
            f"{'word pieces' if isinstance(tokenizer, BertTokenizer) else 'byte-level BPE'}; a RoBERTa is fine-tuned "
            "with byte-level BPE (vocab.json and merges.txt), all others with word pieces (vocab.txt)"
        )
    if isinstance(tokenizer, ByteBpeTokenizer):
        try:
            check_order(tokenizer.merges)
        except ValueError as error:
            raise InputError(f"{directory}: {error}") from error
    backbone = backbone_of(found.model)
    if backbone.embeddings_project is not None:
        raise InputError(
            f"{directory}: is an ELECTRA with embeddings of {backbone.embeddings.config.hidden_size} in an encoder of "
            f"{backbone.config.hidden_size}; only one with both of one width (pretraining.embedding_size = "
            "model.hidden_size) can be fine-tuned"
        )
    return Start(backbone.config, tokenizer, backbone, found.family)
