"""What pre-training examples look like (`ExampleSettings`)."""

from __future__ import annotations

import dataclasses

from bert_keras.masking import MaskingSettings

TRAIN, EVAL = "train", "eval"


@dataclasses.dataclass(frozen=True)
class ExampleSettings:
    """How documents become pre-training examples; names are the flags of create_pretraining_data.py.

    Attributes:
        max_seq_length: T, tokens of an example, [CLS] and both [SEP] counted.
        dupe_factor: passes over the training documents, each with its own pairs and masks.
        short_seq_prob: probability that a document is cut, in one pass, to a random shorter length than T.
        seed: of every random choice.
        masking: how tokens are masked.
    """

    max_seq_length: int = 128
    dupe_factor: int = 5
    short_seq_prob: float = 0.1
    seed: int = 12345
    masking: MaskingSettings = dataclasses.field(default_factory=MaskingSettings)

    def __post_init__(self) -> None:
        if self.max_seq_length < 5:
            raise ValueError(
                f"examples.max_seq_length is {self.max_seq_length}; it must be at least 5: "
                "[CLS], [SEP], [SEP] and a token for each segment"
            )
        if self.dupe_factor < 1:
            raise ValueError(f"examples.dupe_factor is {self.dupe_factor}; it must be at least 1")
        if not 0.0 <= self.short_seq_prob <= 1.0:
            raise ValueError(f"examples.short_seq_prob is {self.short_seq_prob}; it must be in [0, 1]")
        if self.masking.max_predictions_per_seq > self.max_seq_length:
            raise ValueError(
                f"examples.masking.max_predictions_per_seq is {self.masking.max_predictions_per_seq}; "
                f"it must be at most examples.max_seq_length, {self.max_seq_length}"
            )

    @property
    def max_num_tokens(self) -> int:
        """Tokens of text in an example: all but [CLS] and two [SEP]."""
        return self.max_seq_length - 3

    def passes(self, split: str) -> int:
        """Passes over the documents of a split: evaluation needs no text twice."""
        if split not in (TRAIN, EVAL):
            raise ValueError(f"split is {split!r}; it must be {TRAIN!r} or {EVAL!r}")
        return self.dupe_factor if split == TRAIN else 1
