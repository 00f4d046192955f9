"""Contrastive training of vectors of texts.

A row has C texts, each encoded alone: a text and its positive, and perhaps a hard negative. A row with only one text is
encoded twice, with two draws of dropout (SimCSE, Gao et al. 2021, arXiv 2104.08821, equation 1). For the row i of a
batch, with the vectors x of the texts and y of their positives, and z of the negatives (equation 5 there):

    loss_i = -log(exp(cos(x_i, y_i) / t) / sum_j (exp(cos(x_i, y_j) / t) + exp(cos(x_i, z_j) / t)))    t = 0.05

j goes over the whole batch, on several devices over all of them. Unlike SimCSE's code, there is no dense layer on
[CLS] while training, and the last weights are kept, not the best of the held-out rows.

Shapes: N rows, B rows of a batch, C texts of a row, T tokens, H hidden.
"""

import dataclasses
from collections.abc import Sequence

from keras import ops

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.layers import MASKED_SCORE
from bert_keras.objectives.labels import label_objective
from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.objectives.objective import Objective
from bert_keras.tasks.objectives import weight_totals
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings

# SimCSE's, and the inverse of sentence-transformers' scale.
TEMPERATURE = 0.05


def _example_sums(vectors, batch):
    weights = ops.cast(batch["weights"], "float32")
    rows = ops.shape(weights)[0]
    others = ops.transpose(vectors[:, 1:], (1, 2, 0))  # [C - 1, H, B]
    cosines = ops.transpose(ops.matmul(vectors[:, 0], others), (1, 0, 2))  # [B, C - 1, B]
    # Rows of weight 0 fill up a batch.
    logits = cosines / TEMPERATURE + MASKED_SCORE * ops.cast(weights <= 0, "float32")
    nll, correct = nll_and_hits(ops.reshape(logits, (rows, -1)), ops.arange(rows))
    return {"nll": nll * weights, "correct": correct * weights, "weight": weights}


objective = dataclasses.replace(
    label_objective("similarity"), example_sums=_example_sums, totals=weight_totals, whole_batch=("weights",)
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
