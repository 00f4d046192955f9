"""The heads of `transformers`' fine-tuned models: names of tensors, and the layer between encoder and output layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class TaskHead(NamedTuple):
    """A head in Hugging Face's files.

    Attributes:
        output: the output layer. Of choices it has a bias there, which changes no answer and is not read.
        layer: the layer before it, the pooler here; "": there is none.
        functions: what that layer can compute (`bert_keras.models.backbone.HEADS`). Of two, `classifier_pooling` of
            `config.json` is `cls` with the first and `mean` with the second.
        norm: the layer normalisation of that layer; "": there is none.
        must_be: fields of `config.json` whose other values mean another function.
    """

    output: str = "classifier"
    layer: str = ""
    functions: tuple[str, ...] = ("tanh",)
    norm: str = ""
    must_be: Mapping[str, Any] = {}


def task_heads(sequences: TaskHead, choices: TaskHead | None = None) -> dict[str, TaskHead]:
    """The heads of a family by the end of the class's name; choices have that of sequences, or their own."""
    of_tokens = {"ForTokenClassification": TaskHead(), "ForQuestionAnswering": TaskHead("qa_outputs")}
    return {"ForSequenceClassification": sequences, "ForMultipleChoice": choices or sequences, **of_tokens}


def roberta_task_heads(pooler: str) -> dict[str, TaskHead]:
    """RoBERTa's: sequences have a dense layer of the head's own, choices the encoder's `pooler`."""
    return task_heads(TaskHead("classifier.out_proj", "classifier.dense"), TaskHead(layer=pooler))
