"""ELECTRA: a generator replaces masked tokens, a discriminator detects the replacements (arXiv 2003.10555).

Citations name files of google-research/electra.

Shapes: B batch, T tokens, P predictions, H hidden, E width of the embeddings, V vocabulary.
"""

import dataclasses
from typing import Literal

import keras
from keras import ops

from bert_keras.errors import Count, PositiveShare, Settings
from bert_keras.models.backbone import SEEDS_PER_LAYER, BertBackbone, ConfiguredModel
from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import GlorotUniform, random_bits
from bert_keras.models.layers import BertEmbeddings, Dense, activation, dense
from bert_keras.models.pretraining_heads import MaskedLanguageModel, MaskedLMHead


@dataclasses.dataclass(frozen=True)
class ElectraConfig(Settings, section="pretraining"):
    """The configuration of both encoders; the published sizes use the exact gelu, as in the original's code.

    Attributes:
        discriminator: the encoder that is kept. The generator differs only in width.
        embedding_size: E, width of all embeddings; a dense layer projects them to each encoder's width.
        generator_size: the generator's width as a fraction of the discriminator's. ELECTRA-Small was released with 1.0
            (google-research/electra, issue 39).
        generator_layers: the generator's layers; 0: as many as the discriminator's.
        embedding_sharing: `shared`: one set of embeddings; `gdes`: the discriminator's word embeddings are the
            generator's, without a gradient, plus a table of its own that begins as 0, and each has its other embeddings
            (gradient-disentangled embedding sharing, arXiv 2111.09543, section 3.2).
    """

    discriminator: BertConfig
    embedding_size: Count
    generator_size: PositiveShare
    generator_layers: int = 0
    embedding_sharing: Literal["shared", "gdes"] = "shared"

    def __post_init__(self) -> None:
        super().__post_init__()
        if round(self.discriminator.hidden_size * self.generator_size) < 1:
            raise ValueError(f"generator_size is {self.generator_size}; the generator would have no width")

    @property
    def generator(self) -> BertConfig:
        """The discriminator's layers at another width and depth: 64-wide heads, inner layers of four times the width.

        At the discriminator's width it equals the discriminator, so a generator loaded alone may have any heads.
        """
        layers = self.generator_layers or self.discriminator.num_hidden_layers
        deep = dataclasses.replace(self.discriminator, num_hidden_layers=layers)
        if self.generator_size == 1:
            return deep
        hidden = round(self.discriminator.hidden_size * self.generator_size)
        return dataclasses.replace(
            deep, hidden_size=hidden, num_attention_heads=max(1, hidden // 64), intermediate_size=4 * hidden
        )

    @property
    def embeddings(self) -> BertConfig:
        """The configuration of the embeddings and of the head tied to them, E wide."""
        return self.discriminator.of_width(self.embedding_size)


class AddedEmbedding(keras.layers.Embedding):
    """Rows of another table, to which no gradient goes, plus rows of its own, at first 0."""

    def __init__(self, shared: keras.layers.Embedding, **kwargs):
        super().__init__(shared.input_dim, shared.output_dim, embeddings_initializer="zeros", **kwargs)
        self._shared = lambda: shared  # another layer tracks it

    def call(self, inputs):
        return super().call(inputs) + ops.stop_gradient(self._shared()(inputs))

    def whole(self):
        """The sum of both tables [V, E], which alone is known to other programs."""
        return self.embeddings + self._shared().embeddings


class _ElectraModel(ConfiguredModel):
    """Base of the models below: one serialisable configuration."""

    @property
    def width(self) -> int:
        return self.config.discriminator.hidden_size

    def word_table(self):
        """The whole word embeddings of a network [V, E]."""
        table = self.backbone.embeddings.word_embeddings
        return table.whole() if isinstance(table, AddedEmbedding) else table.embeddings

    @classmethod
    def from_config(cls, config):
        shape = {**config["config"], "discriminator": BertConfig(**config["config"]["discriminator"])}
        return cls(**{**config, "config": ElectraConfig(**shape)})


class ElectraGenerator(_ElectraModel, MaskedLanguageModel):
    """The narrow encoder with the masked-LM head: dense to E, gelu, layer normalisation, tied decoder and bias."""

    def __init__(self, config: ElectraConfig, seed: int = 0, embeddings: BertEmbeddings | None = None, **kwargs):
        ConfiguredModel.__init__(self, config, seed, **kwargs)
        embeddings = embeddings or BertEmbeddings(config.embeddings, seed, name="embeddings")
        self.backbone = BertBackbone(config.generator, seed, False, embeddings, name="generator")
        head_seed = seed + SEEDS_PER_LAYER * (config.generator.num_hidden_layers + 1)
        self.mlm_head = MaskedLMHead(config.embeddings, head_seed, name="generator_predictions")

    @property
    def width(self) -> int:
        return self.config.generator.hidden_size


class ElectraDiscriminator(_ElectraModel):
    """The encoder to fine-tune, with the head that detects replaced tokens: dense, gelu, dense.

    Call with the backbone's inputs. Returns the backbone's outputs and `discriminator_logits` float [B, T]: above 0,
    replaced.
    """

    def __init__(self, config: ElectraConfig, seed: int = 0, embeddings: BertEmbeddings | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        shape = config.discriminator
        embeddings = embeddings or BertEmbeddings(config.embeddings, seed, name="embeddings")
        self.backbone = BertBackbone(shape, seed, False, embeddings, name="electra")
        head_seed = seed + SEEDS_PER_LAYER * (shape.num_hidden_layers + 1)
        name = "discriminator_predictions_dense"
        self.head_dense = dense(shape, shape.hidden_size, head_seed, name, activation(shape))
        # Glorot's uniform, as in the original's code.
        self.head_output = Dense(
            1, kernel_initializer=GlorotUniform(head_seed + 1), name="discriminator_predictions_output"
        )

    def call(self, inputs, training=False):
        outputs = self.backbone(inputs, training=training)
        logits = self.head_output(self.head_dense(outputs["sequence_output"]))
        return {**outputs, "discriminator_logits": ops.squeeze(logits, -1)}


class ElectraForPreTraining(_ElectraModel):
    """Generator and discriminator over shared embeddings (word, position, segment, layer normalisation), or `gdes`.

    Call with the backbone's inputs, `masked_lm_positions` int [B, P] and `masked_lm_weights` float [B, P]. Returns the
        discriminator's outputs; `mlm_logits` float [B, P, V], of the generator; `sampled_ids` int32 [B, T], the
        discriminator's input. Each call samples again from `seed_generator`, in evaluation too.
    """

    # Dropout after the shared embeddings draws once for each encoder.
    draws_per_call = 2

    def __init__(self, config: ElectraConfig, seed: int = 0, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.embeddings = BertEmbeddings(config.embeddings, seed, name="embeddings")
        embeddings = self.embeddings
        if config.embedding_sharing == "gdes":
            added = AddedEmbedding(embeddings.word_embeddings, name="word_embeddings")
            embeddings = BertEmbeddings(config.embeddings, seed, added, name="embeddings")
        self.discriminator = ElectraDiscriminator(config, seed, embeddings, name="discriminator")
        # Past the seeds of the discriminator's layers and head.
        generator_seed = seed + SEEDS_PER_LAYER * (config.discriminator.num_hidden_layers + 2)
        self.generator = ElectraGenerator(config, generator_seed, self.embeddings, name="generator")
        self.seed_generator = keras.random.SeedGenerator(seed)

    def split_embeddings(self) -> None:
        """Subtract the generator's table from the discriminator's, which has been assigned as a whole (`gdes`)."""
        table = self.discriminator.backbone.embeddings.word_embeddings
        if isinstance(table, AddedEmbedding):
            table.embeddings.assign(table.embeddings - self.embeddings.word_embeddings.embeddings)

    def call(self, inputs, training=False):
        mlm_logits = self.generator(inputs, training=training)["mlm_logits"]
        sampled_ids = put(inputs, sample(mlm_logits, self.seed_generator))
        outputs = self.discriminator({**inputs, "input_ids": sampled_ids}, training=training)
        return {**outputs, "mlm_logits": mlm_logits, "sampled_ids": sampled_ids}


def sample(logits, seed: keras.random.SeedGenerator):
    """Sample tokens from the softmax of logits [..., V] by the Gumbel trick: int32 [...], without gradients.

    The noise is -log(-log(1 - u)), u = (bits + 1/2) / 2^32 of `random_bits`: its upper end, which wins, is the finer
    one, so that two of 30,522 equal logits have the same noise once in 100,000 draws; and it is below 23.
    """
    bits = ops.cast(random_bits(ops.shape(logits), seed.next()), "float32")
    # Rounded to float32 the largest would be 1, of infinite noise.
    uniform = ops.minimum((bits + 0.5) * 2.0**-32, 1 - 2.0**-24)
    noisy = ops.stop_gradient(ops.cast(logits, "float32")) - ops.log(-ops.log1p(-uniform))
    return ops.cast(ops.argmax(noisy, axis=-1), "int32")


def put(inputs, ids):
    """Write `ids` int [B, P] to the masked positions of the input: int32 [B, T].

    A position that occurs more than once gets the mean, rounded down, as in the original, which draws positions with
    replacement (pretrain/pretrain_helpers.py, `scatter_update`). Padding, of weight 0, writes nothing. `inputs`: dict
    with `input_ids` int [B, T], `masked_lm_positions` int [B, P] and `masked_lm_weights` float [B, P].
    """
    input_ids = ops.cast(inputs["input_ids"], "int32")
    index = ops.arange(ops.shape(input_ids)[1], dtype="int32")
    masked = ops.equal(ops.cast(inputs["masked_lm_positions"], "int32")[:, :, None], index)  # [B, P, T]
    masked = ops.cast(masked & (inputs["masked_lm_weights"] > 0)[:, :, None], "int32")
    count = ops.sum(masked, axis=1)
    total = ops.sum(masked * ops.cast(ids, "int32")[:, :, None], axis=1)
    return ops.where(count > 0, total // ops.maximum(count, 1), input_ids)
