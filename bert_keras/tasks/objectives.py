"""The objectives of task types.

Numbers (regression, as for STS-B, paper section 4.1): the original has none. As in `transformers`, the number is not
scaled (ELECTRA's code divides by 5) and the loss is the squared error; answers are the model's outputs, which may be
out of the range.

A ranking's number is the logit of the relevance of a passage (`text_pair`) for a query (`text`), as of monoBERT (R.
Nogueira, K. Cho 2019, arXiv 1901.04085, section 2): the loss is the binary cross-entropy, and labels above 0 are
relevant alike. With `TaskSettings.list_size` it is that of a softmax over the passages of a list, a relevant one and
others of its query, as in LCE (L. Gao et al. 2021, arXiv 2101.08751, section 3).

Spans are those of run_squad.py (paper, sections 4.2 and 4.3).

Vectors: a row has C texts, each encoded alone: a text, its positive and perhaps a hard negative. A row with only one
text is encoded twice, with two draws of dropout (SimCSE, Gao et al. 2021, arXiv 2104.08821, equation 1). For the row i
of a batch, with the vectors x of the texts and y of their positives, and z of the negatives (equation 5 there):

    loss_i = -log(exp(cos(x_i, y_i) / t) / sum_j (exp(cos(x_i, y_j) / t) + exp(cos(x_i, z_j) / t)))    t = 0.05

j goes over the whole batch, on several devices over all of them. Unlike SimCSE's code, there is no dense layer on
[CLS] while training, and the last weights are kept, not the best of the held-out rows.

Shapes: B rows of a batch, C texts of a row, T tokens, H hidden.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from keras import ops

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.layers import MASKED_SCORE
from bert_keras.objectives.labels import label_objective, sigmoid_nll_and_hits
from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.objectives.objective import Objective
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings

# SimCSE's, and the inverse of sentence-transformers' scale.
TEMPERATURE = 0.05
SPAN_SUMS = ("start_nll", "end_nll", "start_correct", "end_correct", "weight")


def _totals(batch):
    return (ops.sum(ops.cast(batch["weights"], "float32")),)


def _number_sums(outputs, batch):
    weights = ops.cast(batch["weights"], "float32")
    errors = ops.square(ops.cast(outputs, "float32") - ops.cast(batch["labels"], "float32"))
    return {"squared_error": errors * weights, "weight": weights}


def _span_sums(outputs, batch):
    """float32 [B] for each of `SPAN_SUMS`; `nll` is the negative log-likelihood over all T positions, in nats."""
    weights = ops.cast(batch["weights"], "float32")
    sums = {"weight": weights}
    for name in ("start", "end"):
        nll, hit = nll_and_hits(outputs[f"{name}_logits"], batch[f"{name}_positions"])
        sums[f"{name}_nll"], sums[f"{name}_correct"] = weights * nll, weights * hit
    return sums


def _span_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    weight = max(sums["weight"], 1e-30)
    return {
        "loss": (sums["start_nll"] + sums["end_nll"]) / (2.0 * weight),
        "start_accuracy": sums["start_correct"] / weight,
        "end_accuracy": sums["end_correct"] / weight,
    }


number_objective = Objective(
    "regression",
    ("squared_error", "weight"),
    _number_sums,
    _totals,
    lambda sums, totals: ops.divide_no_nan(sums["squared_error"], totals[0]),
    lambda sums: {"loss": sums["squared_error"] / max(sums["weight"], 1e-5)},
)
ranking_objective = label_objective("ranking", nll_and_hits=sigmoid_nll_and_hits)
list_objective = label_objective("ranking")
span_objective = Objective(
    "span",
    SPAN_SUMS,
    _span_sums,
    _totals,
    lambda sums, totals: ops.divide_no_nan(sums["start_nll"] + sums["end_nll"], 2.0 * totals[0]),
    _span_metrics,
)


def _vector_sums(vectors, batch):
    weights = ops.cast(batch["weights"], "float32")
    rows = ops.shape(weights)[0]
    others = ops.transpose(vectors[:, 1:], (1, 2, 0))  # [C - 1, H, B]
    cosines = ops.transpose(ops.matmul(vectors[:, 0], others), (1, 0, 2))  # [B, C - 1, B]
    # Rows of weight 0 fill up a batch.
    logits = cosines / TEMPERATURE + MASKED_SCORE * ops.cast(weights <= 0, "float32")
    nll, correct = nll_and_hits(ops.reshape(logits, (rows, -1)), ops.arange(rows))
    return {"nll": nll * weights, "correct": correct * weights, "weight": weights}


vector_objective = dataclasses.replace(
    label_objective("similarity"), example_sums=_vector_sums, totals=_totals, whole_batch=("weights",)
)


def matryoshka(dimensions: Sequence[int]) -> Objective:
    """The objective of vectors that may be cut to their first `dimensions`, and normalised again.

    Its loss is the mean of those of the whole vectors and of each length (A. Kusupati et al. 2022, arXiv 2205.13147,
    equation 1, with equal weights); the accuracy is of the whole.
    """

    def example_sums(vectors, batch):
        whole = _vector_sums(vectors, batch)
        cut = [_vector_sums(ops.normalize(vectors[..., :size]), batch)["nll"] for size in dimensions]
        return {**whole, "nll": sum(cut, whole["nll"]) / (1 + len(cut))}

    return dataclasses.replace(vector_objective, example_sums=example_sums)


def check_training(rows: Sequence[TaskRow], settings: TaskSettings, encoder: BertConfig) -> None:
    """InputError for rows of one text without dropout, which teach nothing, or vectors shorter than they are cut to."""
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
