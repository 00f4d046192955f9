"""GPT-BERT's objective: masked tokens of half of the rows, next tokens of the others (arXiv 2410.24159).

Each predicted token counts the same, so next tokens, which are all tokens of their rows, count more. Held-out rows are
only masked, as BERT's.
"""

from collections.abc import Mapping

from bert_keras.models.left_to_right import even_rows, text_of_odd_rows
from bert_keras.objectives import mlm, next_token
from bert_keras.objectives.objective import Objective, means_of


def example_sums(outputs, labels):
    """The sums of `mlm` for all rows, or in training for half of them, and of `next_token` for the other half.

    Args:
        outputs: those of a `bert_keras.models.left_to_right.GptBert`.
        labels: those of `mlm`, and `input_ids` and `input_mask` int [B, T].

    Returns:
        Dict of float32 [B], in training [B / 2].
    """
    if "lm_logits" not in outputs:
        return mlm.example_sums(outputs, labels)
    sums = mlm.example_sums(outputs, even_rows(labels))
    return {**sums, **next_token.example_sums(outputs, text_of_odd_rows(labels))}


def totals(labels):
    """The denominator of the loss: number of predicted tokens."""
    return (mlm.totals(even_rows(labels))[0] + next_token.totals(text_of_odd_rows(labels))[0],)


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """Loss (nats per prediction) and accuracy: of both together, of masked and, in training, of next tokens."""
    metrics = mlm.metrics_of(sums)
    if not sums["lm_weight"]:
        return metrics
    of_all = sum(sums[f"{key}_nll"] for key in ("mlm", "lm")) / (sums["mlm_weight"] + sums["lm_weight"])
    return {**metrics, "loss": of_all, **means_of("lm", sums)}


OBJECTIVE = Objective(
    name="gpt_bert",
    sums=(*mlm.OBJECTIVE.sums, *next_token.OBJECTIVE.sums),
    example_sums=example_sums,
    totals=totals,
    loss=lambda sums, totals: (sums["mlm_nll"] + sums["lm_nll"]) / (totals[0] + 1e-5),
    metrics=metrics_of,
)
