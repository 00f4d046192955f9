"""Configuration of a BERT encoder."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from bert_keras.errors import Count, Rate, Rule, Settings, Size, at_least

# The parts of a pre-training model, as named in messages and `bert_config.json`.
Part = Literal[
    "encoder", "pooler", "masked-LM head", "next-sentence head", "discriminator head", "generator", "task head"
]
HiddenAct = Literal["gelu_tanh", "gelu_erf"]
Positions = Literal["learned", "rotary", "none"]
RelativeAttention = Literal["none", "bias", "disentangled"]
NormPlace = Literal["post", "pre"]
Encoder = Literal["transformer", "bilm", "static"]
# Their names in the original's `bert_config.json`. The original has no exact gelu and refuses the unknown name, which
# is better than silently computing another function.
_ORIGINAL_ACTIVATIONS: dict[HiddenAct, str] = {"gelu_tanh": "gelu", "gelu_erf": "gelu_erf"}


@dataclasses.dataclass(frozen=True)
class BertConfig(Settings, section="model"):
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
        type_vocab_size: number of segments; the paper's A and B. 0: no table, nothing is added.
        initializer_range: standard deviation of every weight matrix, before truncation at two deviations.
        layer_norm_eps: epsilon of every layer normalisation.
        hidden_act: activation of the feed-forward layers and the masked-LM head: `gelu_tanh`, the original's
            approximation, or `gelu_erf`, the exact function, Hugging Face's "gelu" (at most 4.73e-4 apart).
        causal: a token attends only to itself and earlier tokens (the left-to-right model of the paper's section
            5.1); the pooler then reads the last token, because the first sees nothing else.
        position_embedding: `learned`, a table of `max_position_embeddings` rows, or `rotary`: queries and keys are
            rotated by their position (arXiv 2104.09864; halves of a head are the two coordinates, as in ModernBERT);
            `none`: for `relative_attention`.
        rotary_base: base of the rotary positions' wavelengths; in global layers only if there are local ones.
        local_rotary_base: the same, of local layers.
        norm_place: `post`: layer normalisation after each sum, as in the paper; `pre`: before attention and
            feed-forward, but for the first attention, which follows the embeddings' own, and after the last layer.
        gated_feed_forward: `activation(a) * b` of one product [H, 2 `intermediate_size`] (GeGLU, arXiv 2002.05202).
        use_bias: biases in the encoder's dense layers and layer normalisations, and in those of the masked-LM head;
            the output biases of heads, and the pooler's, stay without it.
        local_attention: W, an even number: a token attends to W / 2 tokens on each side; 0: to all.
        global_attn_every_n_layers: with local attention, layers 0, n, 2 n, ... attend to all tokens.
        encoder: `transformer`; `bilm`, the LSTMs of ELMo (`bert_keras.models.bilm` says which fields it reads); or
            `static`, a vector for each token and no layer (`bert_keras.convert.fewer_layers`).
        embedding_width: E, width of the embeddings, which a dense layer then projects to H, and of the masked-LM head
            tied to them (ALBERT's `embedding_size`, arXiv 1909.11942, section 3.1); 0: H. An ELECTRA, whose two
            encoders share the embeddings, has `pretraining.embedding_size`.
        shared_layers: all layers have the same weights, those of layer 0 (ALBERT).
        relative_attention: what the distance of two tokens adds to their score: `bias`, a number for each head (T5's,
            arXiv 1910.10683; MPNet), or `disentangled`: products of the query and of the key with a vector of the
            distance (DeBERTa, arXiv 2006.03654, section 3.1; both terms).
        relative_buckets: number of distances that are told apart: with `bias` of both sides, 32 in MPNet; with
            `disentangled` of each side, 256 in DeBERTa-v3.
        max_relative_distance: distances from there on are one; 128 in MPNet, 512 in DeBERTa-v3.
        shares_position_keys: disentangled attention multiplies vectors of distances by the matrices of content (as in
            DeBERTa-v2 and v3), not by their own.

    The fields after `causal` have the paper's model as their default; `bert_config.json` has those that differ.
    """

    vocab_size: Count = 30522
    hidden_size: Count = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Count = 12
    intermediate_size: Count = 3072
    hidden_dropout_prob: Rate = 0.1
    attention_probs_dropout_prob: Rate = 0.1
    max_position_embeddings: Count = 512
    type_vocab_size: Size = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    hidden_act: HiddenAct = "gelu_tanh"
    causal: bool = False
    position_embedding: Positions = "learned"
    rotary_base: Annotated[float, at_least(1)] = 10_000.0
    local_rotary_base: Annotated[float, at_least(1)] = 10_000.0
    norm_place: NormPlace = "post"
    gated_feed_forward: bool = False
    use_bias: bool = True
    local_attention: Annotated[int, Rule(lambda width: width >= 0 and width % 2 == 0, "even, at least 0")] = 0
    global_attn_every_n_layers: Count = 3
    encoder: Encoder = "transformer"
    embedding_width: Size = 0
    shared_layers: bool = False
    relative_attention: RelativeAttention = "none"
    relative_buckets: int = 32
    max_relative_distance: int = 128
    shares_position_keys: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.encoder == "static") != (self.num_hidden_layers == 0):
            raise ValueError(
                f"model.encoder is {self.encoder} and model.num_hidden_layers {self.num_hidden_layers}: a static one "
                "has no layer, set both"
            )
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"model.hidden_size is {self.hidden_size}, not a multiple of "
                f"model.num_attention_heads, {self.num_attention_heads}"
            )
        if self.relative_attention != "none":
            buckets, longest = self.relative_buckets, self.max_relative_distance
            if buckets < 4 or buckets % 4 or longest < buckets // 2 + 2:
                raise ValueError(
                    f"model.relative_buckets is {buckets}, which must be a multiple of 4, and "
                    f"model.max_relative_distance {longest}, which must be at least half as large, plus 2"
                )
            if self.local_attention or self.position_embedding == "rotary":
                raise ValueError("model.relative_attention needs model.local_attention=0 and no rotary positions")
        if self.encoder == "bilm" and self.hidden_size % 2:
            raise ValueError(
                f"model.hidden_size is {self.hidden_size}; a biLM's is even: each direction has half of it"
            )
        if self.position_embedding == "rotary" and self.hidden_size // self.num_attention_heads % 2:
            raise ValueError(
                f"model.hidden_size is {self.hidden_size}, in {self.num_attention_heads} heads; "
                "model.position_embedding=rotary needs heads of an even width"
            )

    @classmethod
    def size(cls, num_hidden_layers: int, hidden_size: int, **other: int | float | str) -> "BertConfig":
        """The published sizes: 64-wide heads and a feed-forward layer of four times the width."""
        return cls(
            num_hidden_layers=num_hidden_layers,
            hidden_size=hidden_size,
            num_attention_heads=max(1, hidden_size // 64),
            intermediate_size=4 * hidden_size,
            **other,  # type: ignore[arg-type]
        )

    @property
    def weight_layers(self) -> int:
        """Number of layers with weights of their own."""
        return 1 if self.shared_layers else self.num_hidden_layers

    @property
    def distance_rows(self) -> int:
        """Rows of the table of distances; 0 without `relative_attention`."""
        return {"none": 0, "bias": 1, "disentangled": 2}[self.relative_attention] * self.relative_buckets

    def is_local(self, layer: int) -> bool:
        """Return whether a layer, counted from 0, attends to a window only."""
        return self.local_attention > 0 and layer % self.global_attn_every_n_layers > 0

    def variations(self) -> dict[str, Any]:
        """Fields that the original's model lacks: those after `causal` without their default, and no segments."""
        later = list(dataclasses.asdict(self).items())[_ORIGINAL_FIELDS:]
        changed = {name: value for name, value in later if value != getattr(BertConfig, name)}
        return changed if self.type_vocab_size else {**changed, "type_vocab_size": 0}

    def stored_fields(self) -> dict[str, Any]:
        """The fields up to `causal`, and `variations`."""
        return dict(list(dataclasses.asdict(self).items())[:_ORIGINAL_FIELDS]) | self.variations()

    def of_width(self, embedding_size: int | None = None) -> "BertConfig":
        """The configuration of embeddings, and of a head tied to them; None: of the width that is set here."""
        embedding_size = embedding_size or self.embedding_width or self.hidden_size
        if embedding_size == self.hidden_size:
            return self
        return dataclasses.replace(self, hidden_size=embedding_size, num_attention_heads=1, embedding_width=0)

    def to_json(self, **further: object) -> str:
        """`bert_config.json` in the original's format, with further fields."""
        fields = {**self.stored_fields(), "hidden_act": _ORIGINAL_ACTIVATIONS[self.hidden_act], **further}
        return json.dumps(fields, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "BertConfig":
        """Read `bert_config.json`; missing fields have defaults, unknown ones are ignored; ValueError if invalid."""
        return cls.from_fields(json.loads(text), {name: act for act, name in _ORIGINAL_ACTIVATIONS.items()})

    @classmethod
    def from_fields(cls, stored: Any, activations: Mapping[str, HiddenAct]) -> "BertConfig":
        """Make it from the fields of a JSON object; `activations` maps its activation names. Errors as above."""
        if not isinstance(stored, dict):
            raise ValueError(f"it holds {type(stored).__name__}, not a JSON object")
        fields = {field.name: stored[field.name] for field in dataclasses.fields(cls) if field.name in stored}
        if "hidden_act" in fields:
            if fields["hidden_act"] not in activations:
                raise ValueError(f"hidden_act is {fields['hidden_act']!r}; it must be one of {', '.join(activations)}")
            fields["hidden_act"] = activations[fields["hidden_act"]]
        return cls(**fields)


_ORIGINAL_FIELDS = [field.name for field in dataclasses.fields(BertConfig)].index("causal") + 1
