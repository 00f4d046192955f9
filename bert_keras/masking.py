"""Masked-LM masking of whole batches, in NumPy.

Legend: N instances, T `max_seq_length`, P `max_predictions_per_seq`, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import numpy as np


@dataclasses.dataclass(frozen=True)
class MaskingSettings:
    """How tokens are chosen for prediction, and what stands in their place (BERT paper, section 3.1).

    Attributes:
        masked_lm_prob: share of a sequence's tokens, [CLS] and [SEP] counted, that is predicted.
        max_predictions_per_seq: P, most predictions in a sequence.
        mask_fraction: share of the predicted tokens that becomes [MASK].
        keep_fraction: share that stays as it is; the rest becomes a token drawn from the whole vocabulary.
    """

    masked_lm_prob: float = 0.15
    max_predictions_per_seq: int = 20
    mask_fraction: float = 0.8
    keep_fraction: float = 0.1

    def __post_init__(self) -> None:
        for name in ("masked_lm_prob", "mask_fraction", "keep_fraction"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"examples.masking.{name} is {getattr(self, name)}; it must be in [0, 1]")
        if self.mask_fraction + self.keep_fraction > 1.0 + 1e-9:
            raise ValueError(
                f"examples.masking: mask_fraction {self.mask_fraction}, keep_fraction {self.keep_fraction}: "
                "their sum must be at most 1: the rest becomes random tokens"
            )
        if self.max_predictions_per_seq < 1:
            raise ValueError(
                f"examples.masking.max_predictions_per_seq is {self.max_predictions_per_seq}; it must be at least 1"
            )


def num_predictions(num_tokens: np.ndarray, settings: MaskingSettings) -> np.ndarray:
    """Predictions wanted for sequences of `num_tokens` tokens, [CLS] and [SEP] counted: int64, same shape.

    Rounds half to even, as Python 3 does for the original: 10 tokens give 2 (of 1.5), 30 give 4 (of 4.5).
    """
    wanted = np.rint(num_tokens * settings.masked_lm_prob).astype(np.int64)
    return np.clip(wanted, 1, settings.max_predictions_per_seq)


def mask_tokens(
    input_ids: np.ndarray,
    input_mask: np.ndarray,
    rng: np.random.Generator,
    *,
    settings: MaskingSettings,
    unmaskable_ids: Collection[int],
    mask_id: int,
    vocab_size: int,
) -> dict[str, np.ndarray]:
    """Chooses tokens uniformly and masks them: the original's `create_masked_lm_predictions`.

    Args:
        input_ids: integers [N, T], with P <= T.
        input_mask: integers [N, T], 1 for a token and 0 for padding.
        unmaskable_ids: tokens never chosen, [CLS] and [SEP]; they still count for how many are.
        mask_id: id of [MASK].
        vocab_size: V. A random token is any of V, special and unused ones and the masked one included.

    Returns:
        The features that masking changes or makes; `input_ids` stays as it was.
        input_ids:            [N, T], type of the argument.
        masked_lm_positions:  int32 [N, P], ascending, then 0.
        masked_lm_ids:        [N, P], type of `input_ids`, what stood at these positions, then 0.
        masked_lm_weights:    float32 [N, P], 1.0 for a prediction, then 0.0.
    """
    N, T = input_ids.shape
    P = settings.max_predictions_per_seq
    candidates = (input_mask != 0) & ~np.isin(input_ids, list(unmaskable_ids))
    num_masked = np.minimum(num_predictions(input_mask.sum(1), settings), candidates.sum(1))

    # The candidates with the smallest random keys are a uniform choice. A key carries its position in its low
    # bits: sorting values is several times faster than argsort. What is no candidate sorts last.
    position_bits = (T - 1).bit_length()
    keys = rng.integers(0, 1 << (63 - position_bits), (N, T)) << position_bits | np.arange(T)
    keys[~candidates] = np.iinfo(np.int64).max
    chosen = np.sort(np.partition(keys, P - 1, axis=1)[:, :P], axis=1)
    is_prediction = np.arange(P) < num_masked[:, None]
    positions = np.where(is_prediction, chosen & ((1 << position_bits) - 1), T)
    positions.sort(axis=1)
    positions[~is_prediction] = 0

    labels = np.where(is_prediction, np.take_along_axis(input_ids, positions, axis=1), 0)
    fate = rng.random((N, P))
    replacement = rng.integers(0, vocab_size, (N, P), dtype=input_ids.dtype)
    not_random = fate < settings.mask_fraction + settings.keep_fraction
    replacement[not_random] = labels[not_random]
    replacement[fate < settings.mask_fraction] = mask_id
    masked_ids = input_ids.copy()
    rows, slots = np.nonzero(is_prediction)
    masked_ids[rows, positions[rows, slots]] = replacement[rows, slots]
    return {
        "input_ids": masked_ids,
        "masked_lm_positions": positions.astype(np.int32),
        "masked_lm_ids": labels.astype(input_ids.dtype, copy=False),
        "masked_lm_weights": is_prediction.astype(np.float32),
    }
