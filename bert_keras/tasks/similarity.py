"""Vectors of texts: contrastive training, and similarities or the nearest texts by them.

A row has C texts, each encoded alone: a text and its positive, and perhaps a hard negative. A row with only one text is
encoded twice, with two draws of dropout (SimCSE, Gao et al. 2021, arXiv 2104.08821, equation 1). For the row i of a
batch, with the vectors x of the texts and y of their positives, and z of the negatives (equation 5 there):

    loss_i = -log(exp(cos(x_i, y_i) / t) / sum_j (exp(cos(x_i, y_j) / t) + exp(cos(x_i, z_j) / t)))    t = 0.05

j goes over the whole batch, on several devices over all of them. Unlike SimCSE's code, there is no dense layer on
[CLS] while training, and the last weights are kept, not the best of the held-out rows.

Shapes: N rows, B rows of a batch, C texts of a row, T tokens, H hidden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.layers import MASKED_SCORE
from bert_keras.objectives.labels import label_objective
from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.objectives.objective import Objective
from bert_keras.tasks.answers import nearest_texts
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.sequences import TokenRuns, single_sequences
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer

# SimCSE's, and the inverse of sentence-transformers' scale.
TEMPERATURE = 0.05
_TEXTS = ("text", "text_pair", "negative")


def _example_sums(vectors, batch):
    weights = ops.cast(batch["weights"], "float32")
    rows = ops.shape(weights)[0]
    others = ops.transpose(vectors[:, 1:], (1, 2, 0))  # [C - 1, H, B]
    cosines = ops.transpose(ops.matmul(vectors[:, 0], others), (1, 0, 2))  # [B, C - 1, B]
    # Rows of weight 0 fill up a batch.
    logits = cosines / TEMPERATURE + MASKED_SCORE * ops.cast(weights <= 0, "float32")
    nll, correct = nll_and_hits(ops.reshape(logits, (rows, -1)), ops.arange(rows))
    return {"nll": nll * weights, "correct": correct * weights, "weight": weights}


def _totals(batch):
    return (ops.sum(ops.cast(batch["weights"], "float32")),)


objective = dataclasses.replace(
    label_objective("similarity"), example_sums=_example_sums, totals=_totals, whole_batch=("weights",)
)


def matryoshka(dimensions: Sequence[int]) -> Objective:
    """The objective of vectors that may be cut to their first `dimensions`, and normalised again.

    Its loss is the mean of those of the whole vectors and of each length (A. Kusupati et al. 2022, arXiv 2205.13147,
    equation 1, with equal weights); the accuracy is of the whole.
    """

    def example_sums(vectors, batch):
        whole = _example_sums(vectors, batch)
        cut = [_example_sums(ops.normalize(vectors[..., :size]), batch)["nll"] for size in dimensions]
        return {**whole, "nll": sum(cut, whole["nll"]) / (1 + len(cut))}

    return dataclasses.replace(objective, example_sums=example_sums)


def check_training(rows: Sequence[TaskRow], settings: TaskSettings, encoder: BertConfig) -> None:
    """Refuse a training that would learn nothing, or cut vectors to more than they have.

    Raises:
        InputError: rows of one text without dropout, or vectors shorter than they are cut to.
    """
    if settings.matryoshka_dimensions and max(settings.matryoshka_dimensions) >= encoder.hidden_size:
        raise InputError(
            f"task.matryoshka_dimensions is {settings.matryoshka_dimensions}, but the vectors have "
            f"{encoder.hidden_size} numbers; give smaller ones"
        )
    rates = settings.dropout or encoder.hidden_dropout_prob or encoder.attention_probs_dropout_prob
    if "text_pair" not in rows[0].inputs and not rates:
        raise InputError(
            "single texts are encoded twice with dropout, and the initial model has none; set it with --set "
            "task.dropout=0.1"
        )


def features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """See `bert_keras.tasks.task_types.TaskType`; the encoder's inputs are int32 [N, C, T].

    A scored pair weighs as much as its score of the highest, in the held-out loss.

    Raises:
        InputError: also for rows with different texts.
    """
    names = [name for name in _TEXTS if rows and name in rows[0].inputs]
    for row in rows:
        if (given := [name for name in _TEXTS if name in row.inputs]) != names:
            raise InputError(
                f"row {row.row_id} of {task.name} has {' and '.join(given)}, row {rows[0].row_id} has "
                f"{' and '.join(names)}; all must have the same"
            )
    names = names if len(names) > 1 else ["text", "text"]
    texts = TokenRuns.of(tokenizer, [str(row.inputs[name]) for row in rows for name in names])
    arrays = single_sequences(texts, settings.max_seq_length, settings.truncation, tokenizer)
    arrays = {name: array.reshape(len(rows), len(names), array.shape[1]) for name, array in arrays.items()}
    scores = np.array([row.gold if isinstance(row.gold, (int, float)) else 1.0 for row in rows], np.float32)
    arrays["weights"] = np.maximum(scores, 0) / max(1e-5, scores.max(initial=0))
    return TaskFeatures(arrays, np.arange(len(rows)))


def answers(
    outputs: np.ndarray, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[Any]:
    """The cosine of each row's first two vectors of [N, C, H]; of a retrieval the nearest of all rows' positives."""
    if task.kind == "retrieval":
        return nearest_texts([str(row.inputs["text_pair"]) for row in rows], outputs[:, 0], outputs[:, 1])
    return np.sum(outputs[:, 0] * outputs[:, 1], axis=-1).astype(float).tolist()
