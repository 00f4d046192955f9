"""What fine-tuning starts from: an encoder and its vocabulary."""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from bert_keras.backbone import BertBackbone
from bert_keras.config import BertConfig
from bert_keras.errors import InputError
from bert_keras.interchange.any_format import read_any, tokenizer_of
from bert_keras.interchange.architecture import FAMILY_NAMES, backbone_of
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class Start:
    """An encoder to be fine-tuned.

    Attributes:
        config: its shape.
        tokenizer: its vocabulary.
        backbone: its weights; None: they are drawn, as for a new model.
    """

    config: BertConfig
    tokenizer: Tokenizer
    backbone: BertBackbone | None = None

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
        if self.backbone is not None:
            for variable, value in zip(model.backbone.weights, self.backbone.weights, strict=True):
                variable.assign(ops.convert_to_tensor(value))


def read_start(directory: str, cased: bool | None = None) -> Start:
    """The encoder of a folder: google-research/bert's, Hugging Face's, keras-hub's, or one that was pushed.

    A BERT's, SpanBERT's or left-to-right model's, or an ELECTRA's whose embeddings are as wide as its encoder: then it
    has the weights of a BERT. Heads are left behind, but for the pooler; one that the folder does not hold is drawn.

    Args:
        directory: the folder.
        cased: whether the vocabulary keeps case; None: as the folder says.

    Raises:
        InputError: it cannot be read, is another model, has no vocabulary, or does not say whether that is lower-cased.
    """
    found = read_any(directory)
    if found.family not in ("bert", "electra"):
        raise InputError(
            f"{directory}: is of the family {FAMILY_NAMES[found.family]}; only a BERT or an ELECTRA can be fine-tuned: "
            "the heads of the tasks are a BERT's"
        )
    tokenizer = tokenizer_of(found, directory, cased)
    if not isinstance(tokenizer, BertTokenizer):
        raise InputError(f"{directory}: has no vocab.txt; put the one that the model was trained with there")
    backbone = backbone_of(found.model)
    if backbone.embeddings_project is not None:
        raise InputError(
            f"{directory}: is an ELECTRA with embeddings of {backbone.embeddings.config.hidden_size} in an encoder of "
            f"{backbone.config.hidden_size}; only one with both of one width (pretraining.embedding_size = "
            "model.hidden_size) can be fine-tuned"
        )
    return Start(backbone.config, tokenizer, backbone if backbone.has_pooler else with_pooler(backbone))


def with_pooler(encoder: BertBackbone) -> BertBackbone:
    """The same encoder with a pooler that is drawn, as BERT's heads read one; ELECTRA has none (FACTS D8)."""
    backbone = BertBackbone(encoder.config, encoder.seed)
    backbone.build()
    backbone.embeddings.set_weights(encoder.embeddings.get_weights())
    for ours, theirs in zip(backbone.encoder_layers, encoder.encoder_layers, strict=True):
        ours.set_weights(theirs.get_weights())
    return backbone
