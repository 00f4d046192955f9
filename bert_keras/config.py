"""What a BERT is (`BertConfig`) and how it is trained (`TrainingConfig`)."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Mapping
from typing import Any, Literal

HiddenAct = Literal["gelu_tanh", "gelu_erf"]
# What the original's `bert_config.json` calls them. It has no exact gelu, and refuses a name that it does not know:
# better than another function without a word.
_ORIGINAL_ACTIVATIONS: dict[HiddenAct, str] = {"gelu_tanh": "gelu", "gelu_erf": "gelu_erf"}


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
        hidden_act: of the feed-forward layers and the masked-LM head: `gelu_tanh`, the original's approximation, or
            `gelu_erf`, the exact one, Hugging Face's "gelu" (FACTS D4: at most 4.73e-4 apart).
        causal: a token attends to itself and those before it alone (the left-to-right model of the paper's section
            5.1); the pooler then takes the last token, not the first, which sees nothing else.
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
    hidden_act: HiddenAct = "gelu_tanh"
    causal: bool = False

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
        if self.hidden_act not in typing.get_args(HiddenAct):
            raise ValueError(f"model.hidden_act is {self.hidden_act!r}; it must be gelu_tanh or gelu_erf")

    @classmethod
    def size(cls, num_hidden_layers: int, hidden_size: int, **other: int | float | str) -> BertConfig:
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
        fields = {**dataclasses.asdict(self), "hidden_act": _ORIGINAL_ACTIVATIONS[self.hidden_act]}
        return json.dumps(fields, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> BertConfig:
        """Reads `bert_config.json`; what it does not say is the default, what it says beyond the fields is ignored.

        Raises:
            ValueError: not a JSON object, an unknown activation, or a value that no model can have.
        """
        return cls.from_fields(json.loads(text), {name: act for act, name in _ORIGINAL_ACTIVATIONS.items()})

    @classmethod
    def from_fields(cls, stored: Any, activations: Mapping[str, HiddenAct]) -> BertConfig:
        """The fields of a JSON object whose names of activations are the keys of `activations`; errors as above."""
        if not isinstance(stored, dict):
            raise ValueError(f"it holds {type(stored).__name__}, not an object of fields")
        fields = {field.name: stored[field.name] for field in dataclasses.fields(cls) if field.name in stored}
        if "hidden_act" in fields:
            if fields["hidden_act"] not in activations:
                raise ValueError(f"hidden_act is {fields['hidden_act']!r}; it must be one of {', '.join(activations)}")
            fields["hidden_act"] = activations[fields["hidden_act"]]
        return cls(**fields)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a model is pre-trained.

    Attributes:
        train_batch_size: sequences a step, over all devices.
        num_train_steps: N, optimizer steps.
        num_warmup_steps: w, steps of linear warm-up from 0, at most N.
        learning_rate: peak rate, which decays linearly to 0 at N.
        schedule: `bert` decays from step 0, so the rate jumps down where the warm-up ends (the original's schedule,
            FACTS D3); `linear` decays from the peak, at the end of the warm-up.
        optimizer: `bert_adam`, without bias correction (the original's, FACTS D3); `adamw`, with (FACTS D9, D10); or
            `lamb` (arXiv 1904.00962), for large batches.
        beta_1: decay a step of the running mean of the gradient.
        beta_2: decay a step of the running mean of its square; RoBERTa's is .98 (FACTS D10).
        epsilon: added to the root of that square; SpanBERT's is 1e-8 (FACTS D9).
        weight_decay: decoupled decay, on all weights but biases and layer normalisations.
        decay_all: on those too (RoBERTa, FACTS D10); `lamb` then rescales them too.
        layer_decay: the rate falls by this factor a layer, from the heads down to the embeddings; ELECTRA fine-tunes
            with .8, or .9 (FACTS D8). 1 trains all at the same rate.
        clip_norm: the gradient is scaled down to at most this global norm.
        clip: `global`: that of the global batch, after it is summed over the devices; `per_replica`: each device's, of
            the mean over its own part, before (the original's, FACTS D3). One device: the same.
        gradient_accumulation_steps: a batch is computed in so many parts, one after another, for less memory; the
            result is that of the whole.
        batch_ramp_from: sequences a step at the beginning; doubles up to `train_batch_size`. 0: no ramp.
        batch_ramp_steps: steps of that ramp, equally many of each size below `train_batch_size`. The learning rate
            does not know of it.
        steps_per_execution: steps run in one call of the compiled loop, between two looks at the progress.
        save_checkpoints_steps: steps between two checkpoints; what a kill can lose.
        keep_checkpoint_max: how many checkpoints are kept.
        eval_batch_size: sequences a batch of the held-out evaluation that is logged while training.
        eval_batches: batches of that evaluation.
        eval_every_steps: steps between two of them.
        strategy: `one_device`, `mirrored` over the devices of this machine, `multi_worker` over those of several, or
            `tpu` (`bert_keras.strategy`).
        mixed_precision: `float32`, or `mixed_bfloat16`.
        jit_compile: compile the forward and backward pass with XLA.
        seed: of the initial weights, of dropout and of the order of the examples.
    """

    train_batch_size: int = 256
    num_train_steps: int = 1_000_000
    num_warmup_steps: int = 10_000
    learning_rate: float = 1e-4
    schedule: Literal["bert", "linear"] = "bert"
    optimizer: Literal["bert_adam", "adamw", "lamb"] = "bert_adam"
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    decay_all: bool = False
    layer_decay: float = 1.0
    clip_norm: float = 1.0
    clip: Literal["global", "per_replica"] = "global"
    gradient_accumulation_steps: int = 1
    batch_ramp_from: int = 0
    batch_ramp_steps: int = 0
    steps_per_execution: int = 20
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 3
    eval_batch_size: int = 64
    eval_batches: int = 8
    eval_every_steps: int = 1000
    strategy: Literal["one_device", "mirrored", "multi_worker", "tpu"] = "one_device"
    mixed_precision: Literal["float32", "mixed_bfloat16"] = "float32"
    jit_compile: bool = False
    seed: int = 12345

    def __post_init__(self) -> None:
        for name in (
            "train_batch_size",
            "num_train_steps",
            "gradient_accumulation_steps",
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
        if not 0 < self.beta_1 < 1 or not 0 < self.beta_2 < 1 or not self.epsilon > 0 or not 0 < self.layer_decay <= 1:
            raise ValueError(
                f"training.beta_1 is {self.beta_1}, training.beta_2 {self.beta_2}, training.epsilon {self.epsilon}, "
                f"training.layer_decay {self.layer_decay}; the betas must be in (0, 1), epsilon above 0, the last in "
                "(0, 1]"
            )
        if not 0 <= self.num_warmup_steps <= self.num_train_steps:
            raise ValueError(
                f"training.num_warmup_steps is {self.num_warmup_steps}; it must be from 0 to "
                f"training.num_train_steps, {self.num_train_steps}"
            )
        ramp = self.batch_ramp_from, self.batch_ramp_steps
        doublings = self.train_batch_size / max(1, self.batch_ramp_from)
        if min(ramp) < 0 or (any(ramp) and (not all(ramp) or doublings < 2 or not math.log2(doublings).is_integer())):
            raise ValueError(
                f"training.batch_ramp_from is {ramp[0]}, training.batch_ramp_steps {ramp[1]}; both must be 0, or both "
                f"above 0 and training.train_batch_size, {self.train_batch_size}, 2, 4, 8, ... times the first"
            )


@dataclasses.dataclass(frozen=True)
class SecondPhase:
    """The last steps of pre-training, on longer sequences (paper, appendix A.2: 90 % of the steps at 128, then 512).

    Attributes:
        num_train_steps: so many of `training.num_train_steps`, the last ones; 0: no second phase.
        train_batch_size: sequences a step, over all devices.
        max_seq_length: T of its examples, which are made of the same text as the first ones.
        max_predictions_per_seq: P of a sequence of theirs.
    """

    num_train_steps: int = 0
    train_batch_size: int = 256
    max_seq_length: int = 512
    max_predictions_per_seq: int = 77

    def __post_init__(self) -> None:
        if self.num_train_steps < 0:
            raise ValueError(f"second_phase.num_train_steps is {self.num_train_steps}; it must be at least 0")
        if self.train_batch_size < 1:
            raise ValueError(f"second_phase.train_batch_size is {self.train_batch_size}; it must be at least 1")


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """How a trained model is written for serving.

    Attributes:
        precision: of what it computes, whatever it was trained in: `float32`, or `mixed_bfloat16`, with matrix products
            in bfloat16. Weights and answers are float32. The gate judges what is exported.
    """

    precision: Literal["float32", "mixed_bfloat16"] = "float32"


@dataclasses.dataclass(frozen=True)
class PretrainingSettings:
    """Which model is pre-trained.

    Attributes:
        model_family: `bert`; `spanbert`, with the span boundary objective (FACTS D9); or `electra`, replaced token
            detection (FACTS D8). The last two learn no next sentences: their examples are of another objective.
        max_pair_targets: of `spanbert`: how many tokens of a span, from its first, its boundaries predict; 15 in the
            released models.
        embedding_size: of `electra`: width of the embeddings; 128 in ELECTRA-small, `model.hidden_size` in the others.
        generator_size: of `electra`: the generator's width, as a share of `model.hidden_size`.
    """

    model_family: Literal["bert", "spanbert", "electra"] = "bert"
    max_pair_targets: int = 20
    embedding_size: int = 128
    generator_size: float = 0.25

    def __post_init__(self) -> None:
        for name in ("max_pair_targets", "embedding_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"pretraining.{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 < self.generator_size <= 1:
            raise ValueError(f"pretraining.generator_size is {self.generator_size}; it must be in (0, 1]")

    def learned(self, objective: str) -> str:
        """The name of what is learned from examples of an `examples.objective` (`bert_keras.pretraining_models`)."""
        if self.model_family != "bert":
            return {"spanbert": "span_boundary", "electra": "electra"}[self.model_family]
        return objective if objective in ("mlm_nsp", "left_to_right") else "mlm"

    def problem(self, objective: str, causal: bool) -> str:
        """Why the model cannot learn from examples of an `examples.objective`; "" if it can."""
        if causal != (objective == "left_to_right"):
            remedy = "model.causal=true" if objective == "left_to_right" else "model.causal=false"
            return f"model.causal is {causal}, but examples.objective is {objective!r}: set {remedy}"
        if self.model_family != "bert" and objective in ("mlm_nsp", "left_to_right"):
            return (
                f"pretraining.model_family is {self.model_family!r}, which does not learn from "
                f"examples.objective={objective!r}: make the examples with 'single_sequence' or 'doc_sentences'"
            )
        return ""
