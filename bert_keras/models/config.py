"""Configuration of a BERT encoder."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any, Literal

# The parts of a pre-training model, as named in messages and `bert_config.json`.
Part = Literal["encoder", "pooler", "masked-LM head", "next-sentence head", "discriminator head", "generator"]
HiddenAct = Literal["gelu_tanh", "gelu_erf"]
# Their names in the original's `bert_config.json`. The original has no exact gelu and refuses the unknown name, which
# is better than silently computing another function.
_ORIGINAL_ACTIVATIONS: dict[HiddenAct, str] = {"gelu_tanh": "gelu", "gelu_erf": "gelu_erf"}


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Configuration of a BERT encoder; field names are those of the original's `bert_config.json`.

    Attributes:
        vocab_size: V, entries of `vocab.txt`.
        hidden_size: H, width of the encoder.
        num_hidden_layers: L, encoder layers.
        num_attention_heads: A, attention heads per layer; H is a multiple of A.
        intermediate_size: width of the feed-forward layer, 4H in every published size.
        hidden_dropout_prob: dropout after embeddings, attention and feed-forward.
        attention_probs_dropout_prob: dropout on the attention probabilities.
        max_position_embeddings: maximum sequence length.
        type_vocab_size: number of segments; the paper's A and B.
        initializer_range: standard deviation of every weight matrix, before truncation at two deviations.
        layer_norm_eps: epsilon of every layer normalisation.
        hidden_act: activation of the feed-forward layers and the masked-LM head: `gelu_tanh`, the original's
            approximation, or `gelu_erf`, the exact function, Hugging Face's "gelu" (at most 4.73e-4 apart).
        causal: a token attends only to itself and earlier tokens (the left-to-right model of the paper's section
            5.1); the pooler then reads the last token, because the first sees nothing else.
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

    def of_width(self, embedding_size: int | None) -> BertConfig:
        """The configuration of embeddings, and of a head tied to them, of another width; None: of the encoder's."""
        if embedding_size in (None, self.hidden_size):
            return self
        return dataclasses.replace(self, hidden_size=embedding_size, num_attention_heads=1)

    def to_json(self, **further: object) -> str:
        """`bert_config.json` in the original's format, with further fields."""
        fields = {**dataclasses.asdict(self), "hidden_act": _ORIGINAL_ACTIVATIONS[self.hidden_act], **further}
        return json.dumps(fields, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> BertConfig:
        """Read `bert_config.json`; missing fields have their defaults, unknown fields are ignored.

        Raises:
            ValueError: not a JSON object, an unknown activation, or an invalid value.
        """
        return cls.from_fields(json.loads(text), {name: act for act, name in _ORIGINAL_ACTIVATIONS.items()})

    @classmethod
    def from_fields(cls, stored: Any, activations: Mapping[str, HiddenAct]) -> BertConfig:
        """Make it from the fields of a JSON object; `activations` maps its activation names. Errors as above."""
        if not isinstance(stored, dict):
            raise ValueError(f"it holds {type(stored).__name__}, not a JSON object")
        fields = {field.name: stored[field.name] for field in dataclasses.fields(cls) if field.name in stored}
        if "hidden_act" in fields:
            if fields["hidden_act"] not in activations:
                raise ValueError(f"hidden_act is {fields['hidden_act']!r}; it must be one of {', '.join(activations)}")
            fields["hidden_act"] = activations[fields["hidden_act"]]
        return cls(**fields)
