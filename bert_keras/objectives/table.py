"""The figures of each pre-training objective, and the gate's bounds of them: one table for gate, summary and report.

Training does not read it (`bert_keras.objectives.registry` has models and losses), so that a changed bound or name does
not make a training start anew. Imports nothing heavy.

    objective        parts                       judged
    mlm_nsp          masked LM, next sentence    perplexity, accuracy; next-sentence accuracy
    mlm_sop          masked LM, sentence order   perplexity, accuracy; sentence-order accuracy
    mlm              masked LM                   perplexity, accuracy
    gpt_bert         masked LM                   perplexity, accuracy
    left_to_right    next token                  perplexity, accuracy
    bidirectional    next, previous token        perplexity and accuracy of each
    span_boundary    masked LM, span boundary    the masked LM's perplexity and accuracy
    electra          generator, discriminator    the generator's perplexity and accuracy
"""

import dataclasses
import math
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Part:
    """One thing that a model learns to predict. The first part of an objective has a perplexity.

    Attributes:
        key: what its figures are called by: KEY_nll, KEY_correct and KEY_weight are sums of the `evaluate` signature,
            KEY_loss and KEY_accuracy are in the training log, KEY_perplexity, KEY_loss or KEY_accuracy are metrics of
            the gate and figures of the summary.
        name: for people.
        metrics: what the gate measures, without the key, and the setting of the gate that is its bound; None: it is
            shown, not judged. A judged perplexity is also compared with the last blessed model's.
        guesses: number of baseline guesses whose sums the `evaluate` signature returns
            (`bert_keras.objectives.unigram`); a judged part has one at least.
    """

    key: str
    name: str
    metrics: Mapping[str, str | None]
    guesses: int = 0

    @property
    def title(self) -> str:
        """Masked-LM, which "loss", "perplexity" or "accuracy" can follow."""
        return self.name[0].upper() + self.name[1:].replace(" ", "-")

    @property
    def bounds(self) -> dict[str, str | None]:
        """Metrics by their whole names, and their bounds: {"nsp_accuracy": "min_nsp_accuracy"}."""
        return {f"{self.key}_{metric}": setting for metric, setting in self.metrics.items()}


_JUDGED = {"perplexity": "max_mlm_perplexity", "accuracy": "min_mlm_accuracy"}
_MASKED_LM = Part("mlm", "masked LM", _JUDGED, guesses=1)
_NEXT_SENTENCE = Part("nsp", "next sentence", {"accuracy": "min_nsp_accuracy"}, guesses=2)
# ALBERT's, in the place of next sentences.
_SENTENCE_ORDER = Part("sop", "sentence order", {"accuracy": "min_nsp_accuracy"}, guesses=2)
PARTS: dict[str, tuple[Part, ...]] = {
    "mlm_nsp": (_MASKED_LM, _NEXT_SENTENCE),
    "mlm_sop": (_MASKED_LM, _SENTENCE_ORDER),
    "mlm": (_MASKED_LM,),
    "gpt_bert": (_MASKED_LM,),
    "left_to_right": (Part("lm", "next token", _JUDGED, guesses=1),),
    "bidirectional": (
        Part("forward_lm", "next token", _JUDGED, guesses=1),
        Part("backward_lm", "previous token", _JUDGED, guesses=1),
    ),
    "span_boundary": (_MASKED_LM, Part("sbo", "span boundary", dict.fromkeys(_JUDGED))),
    "electra": (
        Part("mlm", "generator", _JUDGED, guesses=1),
        Part("disc", "discriminator", {"loss": None, "accuracy": None}),
    ),
}


def bounds_of(objective: str) -> dict[str, str | None]:
    """The metrics of an objective, and the setting of the gate that bounds each; None: it is not judged."""
    return {name: setting for part in PARTS[objective] for name, setting in part.bounds.items()}


def perplexity_text(perplexity: float, digits: int = 1) -> str:
    """A perplexity for people; that of a model that diverged may have three hundred digits.

    >>> perplexity_text(1234.56), perplexity_text(1.014e304)
    ('1,234.6', '1.01e+304')
    """
    return f"{perplexity:,.{digits}f}" if not 1e9 <= perplexity < math.inf else f"{perplexity:.3g}"
