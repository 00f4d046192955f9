"""Cases of `bench_model.py` and `bench_training.py`: a model size, a batch, and its minimum number of FLOPs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bert_keras.models.config import BertConfig

# Layers, width; modern: `modern_base`'s.
SIZES = {"mini": (4, 256), "base": (12, 768), "large": (24, 1024), "modern": (22, 768)}
VOCAB_SIZE = 30_522
# Size of the square float32 or bfloat16 matrices whose product measures the machine's rate.
MATMUL_SIZE = {"cpu": 2048, "gpu": 8192}
# Rows of `packed` and `padded` cases hold sequences of 16 tokens up to the length, all lengths equally often.
SHORTEST = 16
MAX_SEQUENCES = 8


@dataclasses.dataclass(frozen=True)
class Case:
    """One case to measure.

    Attributes:
        size: one of SIZES.
        length: T, tokens of a row.
        batch: rows.
        precision: `float32` or `bfloat16`; the weights and the optimizer are float32 in both.
        mode: `train`, or `infer`: the logits of masked tokens and next sentences.
        rows: `full` (one row in ten ends early, as in the original's data), `padded` (one sequence of any length per
            row), or `packed` (as many such sequences as fit in a row).
        attention_dropout: of the attention probabilities; with 0, JAX has one kernel for attention on a GPU.
    """

    size: str
    length: int
    batch: int
    precision: str = "float32"
    mode: str = "train"
    rows: str = "full"
    attention_dropout: float = 0.1

    def __str__(self) -> str:
        dropout = "" if self.attention_dropout else ", no attention dropout"
        return f"{self.size}, {self.batch} {self.rows} rows of {self.length}, {self.precision}{dropout}"

    @property
    def predictions(self) -> int:
        """P, masked tokens per row: 15 % rounded up, as the original's 20 at 128 tokens."""
        return 20 * self.length // 128

    def inputs(self) -> dict[str, np.ndarray]:
        """The batch: features in the format of `bert_keras.data.example_format`."""
        rng = np.random.default_rng(0)
        if self.rows != "packed":
            return self._sequences(self.batch, rng)
        from bert_keras.data.example_format import ExampleLayout
        from components.pretrain_example_gen.packing import pack_features, pack_sequences

        alone = self._sequences(self.batch * MAX_SEQUENCES, rng)
        layout = ExampleLayout("mlm_nsp", self.length, self.predictions, MAX_SEQUENCES, "static")
        rows = pack_sequences(alone["input_mask"].sum(1), self.length, MAX_SEQUENCES)
        rows = rows[rng.permutation(len(rows))[: self.batch]]
        order = rows[rows >= 0]
        return pack_features({k: v[order] for k, v in alone.items()}, (rows >= 0).sum(1), layout, pad_id=0)

    def _sequences(self, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        T, P = self.length, self.predictions
        lengths = rng.permutation(np.linspace(SHORTEST, T, count).round().astype(int))
        if self.rows == "full":
            lengths = np.where(rng.random(count) < 0.1, lengths, T)
        is_token = np.arange(T) < lengths[:, None]
        masked = np.sort(np.argsort(np.where(is_token, rng.random((count, T)), 2.0), axis=1)[:, :P], axis=1)
        # Masked tokens first, in order, then padding up to P.
        is_masked = np.arange(P) < np.maximum(1, lengths * P // T)[:, None]
        return {
            "input_ids": np.where(is_token, rng.integers(1000, VOCAB_SIZE, (count, T)), 0).astype(np.int32),
            "input_mask": is_token.astype(np.int32),
            "segment_ids": (is_token & (np.arange(T) >= lengths[:, None] // 2)).astype(np.int32),
            "masked_lm_positions": np.where(is_masked, masked, 0).astype(np.int32),
            "masked_lm_ids": np.where(is_masked, rng.integers(1000, VOCAB_SIZE, (count, P)), 0).astype(np.int32),
            "masked_lm_weights": is_masked.astype(np.float32),
            "next_sentence_labels": rng.integers(0, 2, (count, 1)).astype(np.int32),
        }

    def config(self) -> BertConfig:
        """The encoder: BERT's, or `modern_base`'s with the same vocabulary."""
        from bert_keras.models.config import BertConfig
        from pipeline.recipes.relatives import modern_base

        if self.size == "modern":
            return dataclasses.replace(modern_base().model, vocab_size=VOCAB_SIZE)
        return BertConfig.size(
            *SIZES[self.size],
            max_position_embeddings=max(512, self.length),
            attention_probs_dropout_prob=self.attention_dropout,
        )

    def step_flops(self) -> float:
        """Multiplications and additions of a step's matrix products, a lower bound.

        Two per weight and token forwards, four backwards; the products of queries, keys and values; the vocabulary's
        only for the predictions. No embedding look-up, layer normalisation, dropout or optimizer.
        """
        from bert_keras.training.flops import training_flops

        flops = self.batch * training_flops(self.config(), self.length, self.predictions)
        return flops if self.mode == "train" else flops / 3
