"""The objectives of task types; that of vectors is in `bert_keras.tasks.similarity`.

Numbers (regression, as for STS-B, paper section 4.1): the original has none. As in `transformers`, the number is not
scaled (ELECTRA's code divides by 5) and the loss is the squared error; answers are the model's outputs, which may be
out of the range.

A ranking's number is the logit of the relevance of a passage (`text_pair`) for a query (`text`), as of monoBERT (R.
Nogueira, K. Cho 2019, arXiv 1901.04085, section 2): the loss is the binary cross-entropy, and labels above 0 are
relevant alike. With `TaskSettings.list_size` it is that of a softmax over the passages of a list, a relevant one and
others of its query, as in LCE (L. Gao et al. 2021, arXiv 2101.08751, section 3).

Spans are those of run_squad.py (paper, sections 4.2 and 4.3). Shapes: B batch, T tokens.
"""

from collections.abc import Mapping

from keras import ops

from bert_keras.objectives.labels import label_objective, sigmoid_nll_and_hits
from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.objectives.objective import Objective

SPAN_SUMS = ("start_nll", "end_nll", "start_correct", "end_correct", "weight")


def weight_totals(batch):
    """The sum of the weights of a global batch."""
    return (ops.sum(ops.cast(batch["weights"], "float32")),)


def _number_sums(outputs, batch):
    weights = ops.cast(batch["weights"], "float32")
    errors = ops.square(ops.cast(outputs, "float32") - ops.cast(batch["labels"], "float32"))
    return {"squared_error": errors * weights, "weight": weights}


def _number_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    return {"loss": sums["squared_error"] / max(sums["weight"], 1e-5)}


def _span_sums(outputs, batch):
    """`SPAN_SUMS` of each window, float32 [B]; `nll` is the negative log-likelihood over all T positions, in nats.

    Args:
        outputs: dict with `start_logits`, `end_logits`, float [B, T].
        batch: with `start_positions`, `end_positions` int [B], `weights` float [B].
    """
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
    weight_totals,
    lambda sums, totals: ops.divide_no_nan(sums["squared_error"], totals[0]),
    _number_metrics,
)
ranking_objective = label_objective("ranking", nll_and_hits=sigmoid_nll_and_hits)
list_objective = label_objective("ranking")
span_objective = Objective(
    "span",
    SPAN_SUMS,
    _span_sums,
    weight_totals,
    lambda sums, totals: ops.divide_no_nan(sums["start_nll"] + sums["end_nll"], 2.0 * totals[0]),
    _span_metrics,
)
