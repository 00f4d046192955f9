"""Batches of examples in memory, as a stream indexed by example number, for fine-tuning.

Legend: N examples, B rows of a batch, C choices, T tokens. The order of the examples depends on (seed, epoch) only, as
in `bert_keras.data.tfrecord_batches`: a run that resumes at example n reads exactly the batches of an uninterrupted
run. An epoch's last batch continues into the next epoch. For 5 examples in batches of 2:

    epoch          0          0          0   1      1          1
    batch         [3 0]      [4 1]      [2   0]    [4 2]      [1 3]

The longest sequence determines a batch's length: with T = 128 and sequences of 9 and 37 tokens, [2, 48].
"""

import functools
import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from bert_keras.data.example_parser import Arrays, RowShapes

# Outputs of a teacher (`bert_keras.objectives.distillation`); those of spans by the names that the model gives them.
TEACHER_OUTPUTS, TEACHER_TOKENS = "teacher_outputs", "teacher_tokens"
TEACHER_SPANS = {name: f"teacher_{name}" for name in ("start_logits", "end_logits")}
# Arrays whose last axis is T; `token_labels` are -1 for tokens without a prediction.
SEQUENCES = ("input_ids", "input_mask", "segment_ids", "token_labels", TEACHER_TOKENS, *TEACHER_SPANS.values())
TOKEN_LABELS = "token_labels"
WEIGHTS = "weights"
# Batches are cut to a multiple of this, so that few shapes are compiled.
LENGTH_MULTIPLE = 16


class ArrayExamples:
    """Two sets of examples, each a dict of arrays [N, ...] by name (`bert_keras.training.phases.Examples`).

    `train`, `held_out`: `input_ids`, `input_mask`, `segment_ids`, int32 [N, T] or [N, C, T], and the objective's
    labels. `weights`, float32 [N], of examples, default to 1. `static_shape`: batches keep T (a TPU compiles each
    shape, which takes minutes). ValueError: arrays of different N, or none.
    """

    max_predictions_per_seq = 0

    def __init__(self, train: Mapping[str, np.ndarray], held_out: Mapping[str, np.ndarray], static_shape: bool = False):
        self._train, self._held_out, self._static_shape = _weighted(train), _weighted(held_out), static_shape
        self._train_lengths, self._held_out_lengths = _lengths(self._train), _lengths(self._held_out)

    @property
    def train_examples(self) -> int:
        return len(self._train_lengths)

    @property
    def eval_examples(self) -> int:
        return len(self._held_out_lengths)

    @property
    def max_seq_length(self) -> int:
        return self._train["input_ids"].shape[-1]

    @property
    def row_shapes(self) -> RowShapes:
        """Shape and type of a row of a training batch, by name; None: T, cut to the batch's longest sequence."""
        cut = () if self._static_shape else SEQUENCES
        return {
            name: ((*values.shape[1:-1], None) if name in cut else values.shape[1:], values.dtype)
            for name, values in self._train.items()
        }

    def train_batches(
        self, *, batch_size: int, first_example: int, seed: int, worker: int = 0, num_workers: int = 1
    ) -> Iterator[Arrays]:
        """Endless shuffled batches, each a dict of [batch_size / num_workers, ...].

        `batch_size`: size of the global batch, a multiple of `num_workers`; its longest sequence determines the length
        of all its parts. `first_example`: number of examples consumed before. `worker`, `num_workers`: the worker whose
        rows are kept.
        """
        rows = batch_size // num_workers
        for chosen in self._chosen(batch_size, first_example, seed):
            batch = self._batch(self._train, self._train_lengths, chosen)
            yield {name: values[worker * rows : (worker + 1) * rows] for name, values in batch.items()}

    def eval_batches(self, batch_size: int) -> Iterator[Arrays]:
        """The held-out examples once, in order; rows of weight 0, without token labels, fill up the last batch."""
        for first in range(0, self.eval_examples, batch_size):
            chosen = np.arange(first, first + batch_size)
            batch = self._batch(self._held_out, self._held_out_lengths, np.minimum(chosen, self.eval_examples - 1))
            added = chosen >= self.eval_examples
            batch[WEIGHTS] = np.where(added, np.float32(0), batch[WEIGHTS])
            if TOKEN_LABELS in batch:
                batch[TOKEN_LABELS] = np.where(added[:, None], np.int32(-1), batch[TOKEN_LABELS])
            yield batch

    def _chosen(self, batch_size: int, first_example: int, seed: int) -> Iterator[np.ndarray]:
        """The rows of each batch, int [batch_size]."""

        @functools.lru_cache(maxsize=2)  # a batch may span two epochs
        def order(epoch: int) -> np.ndarray:
            # Seeds must be non-negative.
            return np.random.default_rng([seed % 2**64, epoch]).permutation(self.train_examples)

        for first in itertools.count(first_example, batch_size):
            epochs, places = np.divmod(np.arange(first, first + batch_size), self.train_examples)
            yield np.concatenate([order(epoch)[places[epochs == epoch]] for epoch in np.unique(epochs).tolist()])

    def _batch(self, arrays: Arrays, lengths: np.ndarray, chosen: np.ndarray) -> Arrays:
        batch = {name: values[chosen] for name, values in arrays.items()}
        if not self._static_shape:
            longest = max(1, int(lengths[chosen].max()))
            longest = -(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
            batch |= {name: batch[name][..., :longest] for name in SEQUENCES if name in batch}
        return batch


def _weighted(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The arrays, with weights of examples."""
    counts = {name: len(values) for name, values in arrays.items()}
    if len(set(counts.values())) != 1 or not min(counts.values()):
        raise ValueError(f"arrays have {counts} rows; all must have the same number, at least one")
    return {WEIGHTS: np.ones(len(arrays["input_ids"]), "float32"), **arrays}


def _lengths(arrays: Arrays) -> np.ndarray:
    """The length of each example's longest sequence without trailing padding, int [N]."""
    mask = arrays["input_mask"]
    lengths = (np.arange(1, mask.shape[-1] + 1) * (mask != 0)).max(-1)
    return lengths.reshape(len(mask), -1).max(-1)
