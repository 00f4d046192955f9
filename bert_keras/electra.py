"""ELECTRA: a generator that fills masks, a discriminator that finds what it filled in (arXiv 2003.10555; FACTS D8).

Shapes: B batch, T tokens, P predictions, H hidden, E width of the embeddings, V vocabulary.
"""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from bert_keras.backbone import SEEDS_PER_LAYER, BertBackbone
from bert_keras.config import BertConfig
from bert_keras.heads import MaskedLMHead
from bert_keras.layers import BertEmbeddings, activation, initializer
from bert_keras.objectives.electra import put, sample


@dataclasses.dataclass(frozen=True)
class ElectraConfig:
    """The shapes of both encoders; the gelu of the published sizes is the exact one, as in the original's code.

    Attributes:
        discriminator: the encoder that is kept. The generator is like it, but for its width.
        embedding_size: E, of word, position and segment embeddings; a dense layer takes them to each encoder's width.
        generator_size: the generator's width as a fraction of the discriminator's. ELECTRA-Small was released with 1.0
            (google-research/electra, issue 39).
    """

    discriminator: BertConfig
    embedding_size: int
    generator_size: float

    def __post_init__(self) -> None:
        if self.embedding_size < 1:
            raise ValueError(f"embedding_size is {self.embedding_size}; it must be at least 1")
        if not 0 < self.generator_size <= 1:
            raise ValueError(f"generator_size is {self.generator_size}; it must be in (0, 1]")
        if round(self.discriminator.hidden_size * self.generator_size) < 1:
            raise ValueError(f"generator_size is {self.generator_size}; the generator would have no width")

    @classmethod
    def small(cls, **other: int | float | str) -> ElectraConfig:
        """14 million parameters; `other` are fields of `BertConfig`."""
        return cls(BertConfig.size(12, 256, **{"hidden_act": "gelu_erf", **other}), 128, 1 / 4)

    @classmethod
    def base(cls, **other: int | float | str) -> ElectraConfig:
        """110 million parameters; `other` are fields of `BertConfig`."""
        return cls(BertConfig.size(12, 768, **{"hidden_act": "gelu_erf", **other}), 768, 1 / 3)

    @classmethod
    def large(cls, **other: int | float | str) -> ElectraConfig:
        """335 million parameters; `other` are fields of `BertConfig`."""
        return cls(BertConfig.size(24, 1024, **{"hidden_act": "gelu_erf", **other}), 1024, 1 / 4)

    @property
    def generator(self) -> BertConfig:
        """As many layers as the discriminator; 64-wide heads, a feed-forward layer of four times the width (D8).

        At the same width it is the same, so that a generator that was read alone may have any heads.
        """
        if self.generator_size == 1:
            return self.discriminator
        hidden = round(self.discriminator.hidden_size * self.generator_size)
        return dataclasses.replace(
            self.discriminator,
            hidden_size=hidden,
            num_attention_heads=max(1, hidden // 64),
            intermediate_size=4 * hidden,
        )

    @property
    def embeddings(self) -> BertConfig:
        """What the embeddings, and the head that is tied to them, are made with: E wide."""
        return dataclasses.replace(self.discriminator, hidden_size=self.embedding_size, num_attention_heads=1)


class _ElectraModel(keras.Model):
    """What the models below share: one configuration, from which they are made again."""

    def __init__(self, config: ElectraConfig, seed: int, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed

    def get_config(self):
        return {"config": dataclasses.asdict(self.config), "seed": self.seed, "name": self.name}

    @classmethod
    def from_config(cls, config):
        shape = {**config["config"], "discriminator": BertConfig(**config["config"]["discriminator"])}
        return cls(**{**config, "config": ElectraConfig(**shape)})


@keras.saving.register_keras_serializable("bert_keras")
class ElectraGenerator(_ElectraModel):
    """The narrow encoder with the masked-LM head: dense to E, gelu, layer normalisation, tied decoder and bias.

    Call with the backbone's inputs and `masked_lm_positions` int [B, P]. Returns the backbone's outputs and
    `mlm_logits` float [B, P, V].
    """

    def __init__(self, config: ElectraConfig, seed: int = 0, embeddings: BertEmbeddings | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        embeddings = embeddings or BertEmbeddings(config.embeddings, seed, name="embeddings")
        self.backbone = BertBackbone(config.generator, seed, False, embeddings, name="generator")
        head_seed = seed + SEEDS_PER_LAYER * (config.generator.num_hidden_layers + 1)
        self.mlm_head = MaskedLMHead(config.embeddings, head_seed, name="generator_predictions")

    def build(self, input_shape=None):
        self.backbone.build(None)
        self.mlm_head.build((None, None, self.config.generator.hidden_size))
        self.built = True

    def call(self, inputs, training=False):
        outputs = self.backbone(inputs, training=training)
        table = self.backbone.embeddings.word_embeddings.embeddings
        mlm_logits = self.mlm_head(outputs["sequence_output"], inputs["masked_lm_positions"], table)
        return {**outputs, "mlm_logits": mlm_logits}


@keras.saving.register_keras_serializable("bert_keras")
class ElectraDiscriminator(_ElectraModel):
    """The encoder that is fine-tuned, with the head that says which tokens were replaced: dense, gelu, dense.

    Call with the backbone's inputs. Returns the backbone's outputs and `discriminator_logits` float [B, T]: above 0,
    replaced.
    """

    def __init__(self, config: ElectraConfig, seed: int = 0, embeddings: BertEmbeddings | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        shape = config.discriminator
        embeddings = embeddings or BertEmbeddings(config.embeddings, seed, name="embeddings")
        self.backbone = BertBackbone(shape, seed, False, embeddings, name="electra")
        head_seed = seed + SEEDS_PER_LAYER * (shape.num_hidden_layers + 1)
        self.head_dense = keras.layers.Dense(
            shape.hidden_size,
            activation=activation(shape),
            kernel_initializer=initializer(shape, head_seed),
            name="discriminator_predictions_dense",
        )
        # Glorot's uniform, as in the original's code.
        self.head_output = keras.layers.Dense(
            1,
            kernel_initializer=keras.initializers.GlorotUniform(head_seed + 1),
            name="discriminator_predictions_output",
        )

    def build(self, input_shape=None):
        hidden = (None, None, self.config.discriminator.hidden_size)
        self.backbone.build(None)
        self.head_dense.build(hidden)
        self.head_output.build(hidden)
        self.built = True

    def call(self, inputs, training=False):
        outputs = self.backbone(inputs, training=training)
        logits = self.head_output(self.head_dense(outputs["sequence_output"]))
        return {**outputs, "discriminator_logits": ops.squeeze(logits, -1)}


@keras.saving.register_keras_serializable("bert_keras")
class ElectraForPreTraining(_ElectraModel):
    """Generator and discriminator over the same embeddings (word, position, segment, layer normalisation).

    Call with the backbone's inputs, `masked_lm_positions` int [B, P] and `masked_lm_weights` float [B, P]. Returns the
        discriminator's outputs; `mlm_logits` float [B, P, V], of the generator; `sampled_ids` int32 [B, T], what the
        discriminator read. Each call draws anew, from `seed_generator`, in evaluation too.
    """

    def __init__(self, config: ElectraConfig, seed: int = 0, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.embeddings = BertEmbeddings(config.embeddings, seed, name="embeddings")
        self.discriminator = ElectraDiscriminator(config, seed, self.embeddings, name="discriminator")
        # Past the seeds of the discriminator's layers and head.
        generator_seed = seed + SEEDS_PER_LAYER * (config.discriminator.num_hidden_layers + 2)
        self.generator = ElectraGenerator(config, generator_seed, self.embeddings, name="generator")
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape=None):
        self.embeddings.build(None)
        self.discriminator.build(None)
        self.generator.build(None)
        self.built = True

    def call(self, inputs, training=False):
        mlm_logits = self.generator(inputs, training=training)["mlm_logits"]
        sampled_ids = put(inputs, sample(mlm_logits, self.seed_generator))
        outputs = self.discriminator({**inputs, "input_ids": sampled_ids}, training=training)
        return {**outputs, "mlm_logits": mlm_logits, "sampled_ids": sampled_ids}
