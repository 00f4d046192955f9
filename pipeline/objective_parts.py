"""What the models of each objective learn to predict, and what of it is judged: one table for gate, summary and report.

Objectives are called as in `bert_keras.objectives`, which is not always what the examples were made for.

    objective        parts                       judged
    mlm_nsp          masked LM, next sentence    perplexity, accuracy; next-sentence accuracy
    mlm              masked LM                   perplexity, accuracy
    left_to_right    next token                  perplexity, accuracy
    span_boundary    masked LM, span boundary    the masked LM's perplexity and accuracy
    electra          generator, discriminator    the generator's perplexity and accuracy
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Part:
    """One thing that a model learns to predict. The first part of an objective has a perplexity.

    Attributes:
        key: what its figures are called by: KEY_nll, KEY_correct and KEY_weight are sums of the `evaluate` signature,
            KEY_loss and KEY_accuracy are in the training log, KEY_perplexity, KEY_loss or KEY_accuracy are metrics of
            the gate and figures of the summary.
        name: for people.
        metrics: what the gate measures, without the key.
    """

    key: str
    name: str
    metrics: tuple[str, ...]

    @property
    def title(self) -> str:
        """Masked-LM, which "loss", "perplexity" or "accuracy" can follow."""
        return self.name[0].upper() + self.name[1:].replace(" ", "-")


_TOKENS = ("perplexity", "accuracy")
_MASKED_LM = Part("mlm", "masked LM", _TOKENS)
PARTS: dict[str, tuple[Part, ...]] = {
    "mlm_nsp": (_MASKED_LM, Part("nsp", "next sentence", ("accuracy",))),
    "mlm": (_MASKED_LM,),
    "left_to_right": (Part("lm", "next token", _TOKENS),),
    "span_boundary": (_MASKED_LM, Part("sbo", "span boundary", _TOKENS)),
    "electra": (Part("mlm", "generator", _TOKENS), Part("disc", "discriminator", ("loss", "accuracy"))),
}
# Which setting of the gate bounds a metric; other metrics are shown, not judged. A judged perplexity is also compared
# with the last blessed model's.
BOUNDS = {
    "mlm_perplexity": "max_mlm_perplexity",
    "mlm_accuracy": "min_mlm_accuracy",
    "lm_perplexity": "max_mlm_perplexity",
    "lm_accuracy": "min_mlm_accuracy",
    "nsp_accuracy": "min_nsp_accuracy",
}


def metric_names(objective: str) -> list[str]:
    """What the gate measures of models of an objective."""
    return [f"{part.key}_{metric}" for part in PARTS[objective] for metric in part.metrics]
