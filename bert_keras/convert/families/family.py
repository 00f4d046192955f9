"""Names and rules of a family of encoders in the files of other programs."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_keras.convert.families.weight import StoredTensor, Weight
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, HiddenAct


def check_plain(config: BertConfig, whose: str) -> None:
    """Raise InputError for an encoder that is not the original's (`BertConfig.variations`), which `whose` is."""
    for name, value in config.variations().items():
        raise InputError(f"model.{name} is {value!r}; {whose} cannot hold such an encoder; write it with --to bert-tfx")


def plain_fields(family: "Family", config: BertConfig, width: int, activation: str) -> dict[str, Any]:
    """The fields of `config.json` for an encoder without variations."""
    check_plain(config, f"Hugging Face's {family.title}")
    positions = config.max_position_embeddings + family.unused_rows
    return {**config.stored_fields(), "hidden_act": activation, "max_position_embeddings": positions}


def plain_but_for(config: BertConfig, always: Mapping[str, Any], title: str) -> BertConfig:
    """The encoder with the original's values in the fields that all of a family have; InputError for another value."""
    for name, value in always.items():
        if getattr(config, name) != value:
            raise InputError(
                f"model.{name} is {getattr(config, name)!r}, but Hugging Face's {title} always has {value!r}; write "
                "the model with --to bert-tfx"
            )
    return dataclasses.replace(config, **{name: getattr(type(config), name) for name in always})


@dataclasses.dataclass(frozen=True)
class KerasHubClass:
    """keras-hub's class of a family: its function, which is fixed, and the names of its arguments."""

    backbone: str
    hidden_act: HiddenAct
    layer_norm_eps: float
    vocabulary_size: str = "vocabulary_size"
    has_segments: bool = True
    tokenizer: str = "BertTokenizer"
    masked_lm: str | None = None


class TaskHead(NamedTuple):
    """A head in Hugging Face's files."""

    # The output layer. Of choices it has a bias there, which changes no answer and is not read.
    output: str = "classifier"
    layer: str = ""  # the layer before it, the pooler here; "": there is none
    # What that layer can compute (`bert_keras.models.backbone.HEADS`). Of two, `classifier_pooling` of `config.json` is
    # `cls` with the first and `mean` with the second.
    functions: tuple[str, ...] = ("tanh",)
    norm: str = ""  # the layer normalisation of that layer; "": there is none
    must_be: Mapping[str, Any] = {}  # fields of `config.json` whose other values mean another function


def task_heads(sequences: TaskHead, choices: TaskHead | None = None) -> dict[str, TaskHead]:
    """The heads of a family by the end of the class's name; choices have that of sequences, or their own."""
    of_tokens = {"ForTokenClassification": TaskHead(), "ForQuestionAnswering": TaskHead("qa_outputs")}
    return {"ForSequenceClassification": sequences, "ForMultipleChoice": choices or sequences, **of_tokens}


def roberta_task_heads(pooler: str) -> dict[str, TaskHead]:
    """RoBERTa's: sequences have a dense layer of the head's own, choices the encoder's `pooler`."""
    return task_heads(TaskHead("classifier.out_proj", "classifier.dense"), TaskHead(layer=pooler))


@dataclasses.dataclass(frozen=True)
class Family:
    """A row of the table of families.

    All families have the same layers; their files differ in names, in heads and in what the configuration says.
    """

    name: str  # `model_type` of Hugging Face's `config.json`, and `family` of a pushed folder's `bert_config.json`
    title: str  # name in messages
    algorithms: tuple[str, ...]  # the tokenizers that its models have
    # The weights of pooler and heads, from the encoder's configuration and the embeddings' width.
    heads: Callable[[BertConfig, int], Iterable[Weight]] = lambda config, width: ()
    prefix: str = ""  # of Hugging Face's tensors, but for those of the heads
    head_prefixes: tuple[str, ...] = ()  # of Hugging Face's tensors of heads
    class_stem: str = ""  # of the classes of `transformers`: the stem of `BertModel` is "Bert"
    # Tensors that repeat another one of the file: the copy -> the tensor that it equals.
    tied: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Rows of Hugging Face's position embeddings before the first position. In a RoBERTa row 1 is for padding, row 0 is
    # unused (`bert_keras.models.pretraining_heads`).
    unused_rows: int = 0
    # Patterns of Hugging Face's names in a BERT and their replacements (`re.sub`); none: the names are built from
    # `prefix`.
    renamed: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = ()
    in_tf1: bool = False  # whether google-research's checkpoints name the tensors
    keras_hub: KerasHubClass | None = None  # None: keras-hub has no such class
    # Fields of `config.json` whose other values mean another model.
    must_be: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Values of fields that `config.json` may lack.
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    exact_head: bool = False  # whether `transformers` computes the masked-LM head with the exact gelu in any case
    # From the fields of `config.json` to those of `BertConfig`, and `embedding_size` if the file has it; ValueError for
    # an encoder that does not exist here.
    fields_here: Callable[[dict[str, Any]], dict[str, Any]] = dict
    # The inverse, from the family, the encoder, the embeddings' width and the name of its activation there; InputError
    # if the family has no such encoder.
    fields_there: "Callable[[Family, BertConfig, int, str], dict[str, Any]]" = plain_fields
    token_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)  # field there -> attribute of a tokenizer
    # The tensors of a file of Hugging Face's, one for each weight.
    tensors_here: Callable[[Iterable[StoredTensor]], Iterable[StoredTensor]] = iter
    tensors_there: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] = dict  # the inverse
    # The heads of fine-tuned models (`task_heads`).
    task_heads: Mapping[str, TaskHead] = dataclasses.field(default_factory=dict)
    only_fast_tokenizer: bool = False  # whether `transformers` has the tokenizer as `tokenizer.json` alone
    has_segments: bool = True  # whether the texts of a pair may differ in segments, as the tokenizer's format says
    models_of: str = ""  # the family whose classes of models here it has, if that is another one
    masked_lm_only: bool = False  # whether its pre-training trains neither pooler nor next-sentence head
