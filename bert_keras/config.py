"""What a BERT is (`BertConfig`) and how it is trained (`TrainingConfig`)."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The shape of a BERT encoder; field names are those of the original's `bert_config.json`.

    Attributes:
        vocab_size: V, entries of `vocab.txt`.
        hidden_size: H, width of the encoder.
        num_hidden_layers: L, encoder layers.
        num_attention_heads: A, attention heads a layer; H is a multiple of A.
        intermediate_size: width of the feed-forward layer, 4H in every published size.
        hidden_dropout_prob: dropout after embeddings, attention and feed-forward.
        attention_probs_dropout_prob: dropout on the attention probabilities.
        max_position_embeddings: longest sequence the model can take.
        type_vocab_size: segments; the paper's A and B.
        initializer_range: standard deviation, before truncation at two of it, of every weight matrix.
        layer_norm_eps: epsilon of every layer normalisation.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"model.{name} is {getattr(self, name)}; it must be in [0, 1)")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"model.hidden_size is {self.hidden_size}, not a multiple of "
                f"model.num_attention_heads, {self.num_attention_heads}"
            )

    @classmethod
    def size(cls, num_hidden_layers: int, hidden_size: int, **other: int | float) -> BertConfig:
        """The published sizes: 64-wide heads and a feed-forward layer of four times the width."""
        return cls(
            num_hidden_layers=num_hidden_layers,
            hidden_size=hidden_size,
            num_attention_heads=max(1, hidden_size // 64),
            intermediate_size=4 * hidden_size,
            **other,  # type: ignore[arg-type]
        )

    def to_json(self) -> str:
        """`bert_config.json` as the original writes it (readers of the original and of others take it)."""
        return json.dumps({**dataclasses.asdict(self), "hidden_act": "gelu"}, indent=2, sort_keys=True) + "\n"


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a model is pre-trained.

    Attributes:
        train_batch_size: sequences a step, over all devices.
        num_train_steps: N, optimizer steps.
        num_warmup_steps: w, steps of linear warm-up from 0, at most N.
        learning_rate: peak rate; decays linearly from step 0 to 0 at N (the original's schedule, FACTS D3).
        weight_decay: decoupled decay, on all weights but biases and layer normalisations.
        clip_norm: the gradient of the global batch is scaled down to at most this global norm.
        steps_per_execution: steps run in one call of the compiled loop, between two looks at the progress.
        save_checkpoints_steps: steps between two checkpoints; what a kill can lose.
        keep_checkpoint_max: how many checkpoints are kept.
        eval_batch_size: sequences a batch of the held-out evaluation that is logged while training.
        eval_batches: batches of that evaluation.
        eval_every_steps: steps between two of them.
        strategy: `one_device`, or `mirrored` over the devices of this machine.
        mixed_precision: `float32`, or `mixed_bfloat16`.
        jit_compile: compile the forward and backward pass with XLA.
        seed: of the initial weights, of dropout and of the order of the examples.
    """

    train_batch_size: int = 256
    num_train_steps: int = 1_000_000
    num_warmup_steps: int = 10_000
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    steps_per_execution: int = 20
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 3
    eval_batch_size: int = 64
    eval_batches: int = 8
    eval_every_steps: int = 1000
    strategy: Literal["one_device", "mirrored"] = "one_device"
    mixed_precision: Literal["float32", "mixed_bfloat16"] = "float32"
    jit_compile: bool = False
    seed: int = 12345

    def __post_init__(self) -> None:
        for name in (
            "train_batch_size",
            "num_train_steps",
            "steps_per_execution",
            "save_checkpoints_steps",
            "keep_checkpoint_max",
            "eval_batch_size",
            "eval_batches",
            "eval_every_steps",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"training.{name} is {getattr(self, name)}; it must be at least 1")
        if not self.learning_rate > 0 or not self.clip_norm > 0 or not self.weight_decay >= 0:
            raise ValueError(
                f"training.learning_rate is {self.learning_rate}, training.clip_norm {self.clip_norm}, "
                f"training.weight_decay {self.weight_decay}; the first two must be above 0, the last at least 0"
            )
        if not 0 <= self.num_warmup_steps <= self.num_train_steps:
            raise ValueError(
                f"training.num_warmup_steps is {self.num_warmup_steps}; it must be from 0 to "
                f"training.num_train_steps, {self.num_train_steps}"
            )
