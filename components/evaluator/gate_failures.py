"""The thresholds that a model missed, as records (`components.evaluator.results.gate_failures` reads them).

    {"metric": "mlm_perplexity", "kind": "change", "slice": None, "value": 42.0, "direction": "at most", "bound": None,
     "baseline": 40.0, "allowed_change": 0.02, "relative": True, "standard_errors": None}

says that 42 is more than 2 % above 40, the last blessed model's.
"""

import dataclasses

# Kinds: a bound of the value, the change against the last blessed model, the floor of chance, a slice without examples,
# the change against the initial model on the reference corpus, the share of the teacher's score.
VALUE, CHANGE, CHANCE, EMPTY, FORGETTING, TEACHER = "value", "change", "chance", "empty", "forgetting", "teacher"
AT_LEAST, AT_MOST = "at least", "at most"


@dataclasses.dataclass(frozen=True)
class GateFailure:
    """A threshold that was missed; what its kind does not have is None.

    `slice` is (by, of), as ("length", "33 to 64"); None: all examples. The value must be `AT_LEAST` or `AT_MOST` the
    `bound`, which for `CHANCE` is the best guess's, or differ by `allowed_change` from `baseline`, the last blessed
    model's value or for `FORGETTING` the initial model's; `relative`: by a share of it. `standard_errors`: above
    chance. For `TEACHER` the `baseline` is the teacher's value, and `bound` the share of it.
    """

    metric: str | None
    kind: str
    slice: tuple[str, str] | None = None
    value: float | None = None
    direction: str | None = None
    bound: float | None = None
    baseline: float | None = None
    allowed_change: float | None = None
    relative: bool | None = None
    standard_errors: float | None = None
