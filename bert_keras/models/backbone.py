"""The BERT encoder. Shapes: B batch, T tokens, H hidden."""

import dataclasses
from collections.abc import Callable

import keras
from keras import ops

from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import GlorotUniform
from bert_keras.models.layers import (
    MASKED_SCORE,
    BertEmbeddings,
    Dense,
    EncoderLayer,
    activation,
    gelu_erf,
    has_kernel,
    in_blocks,
    initializer,
    layer_norm,
)
from bert_keras.models.relative_positions import RelativePositions, rotary_table

# Each layer draws its initial weights and dropout masks from its own range of seeds.
SEEDS_PER_LAYER = 16
# Functions of the pooler, the layer before the output layer of a head (`TaskSettings.head`); None: the encoder's
# activation, then a layer normalisation, as in ModernBERT, whose layer has no bias if the encoder has none.
HEADS: dict[str, Callable | None] = {
    "tanh": ops.tanh,
    "gelu": gelu_erf,
    "relu": ops.relu,
    "norm": None,
    "norm_mean": None,  # of the mean of the tokens
}


class Pooler(Dense):
    """A dense layer [H, H] with the function `HEADS[head]`."""

    def __init__(self, config: BertConfig, head: str, seed: int, **kwargs):
        has_norm, draw = HEADS[head] is None, initializer(config, seed)
        function, use_bias = HEADS[head] or activation(config), config.use_bias or not has_norm
        super().__init__(config.hidden_size, function, use_bias, kernel_initializer=draw, **kwargs)
        self.norm = layer_norm(config, "norm") if has_norm else None

    def build(self, input_shape):
        super().build(input_shape)
        if self.norm is not None:
            self.norm.build((None, self.units))

    def call(self, inputs, training=None):
        x = super().call(inputs)
        if self.norm is None:
            return x
        # Keras' layer fails on [B, H] with an unknown B.
        return self.norm(x[:, None])[:, 0] if len(x.shape) == 2 else self.norm(x)


def pooled(states, mask, pooling):
    """One vector for each text: `mean` of the vectors [B, T, H] of its tokens (`mask` [B, T]), or that of the first."""
    if pooling == "cls":
        return states[:, 0]
    # A matrix product: the padding's vectors are finite, and count nothing. A text of padding alone has the vector 0.
    return ops.matmul(mask[:, None], states)[:, 0] / ops.maximum(ops.sum(mask, axis=1, keepdims=True), 1.0)


def _rematerialized(layer: keras.layers.Layer) -> Callable:
    """The call of a built layer whose backward pass calls it again, with the same random draws."""
    trained, others = layer.trainable_variables, layer.non_trainable_variables

    def call(x, *arguments, training):
        given = [argument for argument in arguments if argument is not None]

        def stateless(x, *values):
            given_, values = values[: len(given)], values[len(given) :]
            states = values[: len(trained)], values[len(trained) :]
            output, states = layer.stateless_call(*states, x, *given_, training=training)
            return [output, *states]

        # A copy: TensorFlow's variable would have changed when the backward pass reads it.
        output, *states = keras.remat(stateless)(x, *given, *(variable.value * 1 for variable in (*trained, *others)))
        for variable, state in zip(others, states, strict=True):
            # The others are frozen weights.
            if keras.backend.is_int_dtype(variable.dtype):
                variable.assign(state)
        return output

    return call


class ConfiguredModel(keras.Model):
    """Base of the models with an encoder: Keras saves the configuration, the seed and `arguments`.

    Attributes:
        arguments: further arguments of the model, each also an attribute.
        width: width of what its parts read, unless they are already built.
    """

    arguments: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        keras.saving.register_keras_serializable("bert_keras")(cls)

    @property
    def width(self) -> int:
        return self.config.hidden_size

    def __init__(self, config, seed: int, **kwargs):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed

    def build(self, input_shape=None):
        for layer in self.layers:
            if not layer.built:
                layer.build((None, None, self.width))

    def get_config(self):
        further = {name: getattr(self, name) for name in self.arguments}
        return {"config": dataclasses.asdict(self.config), **further, "seed": self.seed, "name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "config": BertConfig(**config["config"])})


class BertBackbone(ConfiguredModel):
    """Embeddings, L encoder layers and the pooler (google-research/bert, modeling.py; paper section 3).

    Call with a dict of `input_ids`, `input_mask` (1 = token, 0 = padding) and `segment_ids`, each int [B, T],
    T <= `max_position_embeddings`. Packed rows (`bert_keras.data.example_format`) also have `sequence_ids` and
    `position_ids`, int [B, T], and `next_sentence_positions`, int [B, S]: every sequence has the same outputs as
    alone. Tokens where `reads_left` int [B, T] is 1 do not see later ones, as all do not in a causal model. Returns a
    dict:
        `sequence_output` float [B, T, H]: the last layer;
        `pooled_output` float [B, H]: dense + tanh of the first position, in a causal model of the last token;
            [B, S, H] with `next_sentence_positions`;
        `embedding_output` float [B, T, H]: the input of the first layer;
        `encoder_outputs` list of L float [B, T, H]: every layer's output, without the embedding output; the
            last is `sequence_output`, with pre-norm after the final layer normalisation.

    Args:
        has_pooler: without a pooler (RoBERTa, ELECTRA), `pooled_output` is the output of the position itself.
        embeddings: embeddings shared with another model, which saves them; None makes new ones.
        embedding_size: E, the width of new embeddings; None: that of `config`. A dense layer without activation
            projects embeddings of another width to H (ELECTRA, ALBERT).
        head: function of the pooler, a key of `HEADS`.

    Attributes, which are not saved, and which a training sets before its first call:
        rematerializes: computes what is inside an encoder layer again in the backward pass, instead of storing it.
        pads_on_the_right: promises that every row of `input_mask` is ones, then zeros, which a compiled model cannot
            check. Attention then reads lengths in the place of a mask where `has_kernel`.
    """

    arguments = ("has_pooler", "embedding_size", "head")
    rematerializes = pads_on_the_right = False

    def __init__(
        self,
        config: BertConfig,
        seed: int = 0,
        has_pooler: bool = True,
        embeddings: BertEmbeddings | None = None,
        embedding_size: int | None = None,
        head: str = "tanh",
        **kwargs,
    ):
        super().__init__(config, seed, **kwargs)
        self.has_pooler, self.head = has_pooler, head
        self._shares_embeddings = embeddings is not None
        self.embeddings = embeddings or BertEmbeddings(config.of_width(embedding_size), seed, name="embeddings")
        self.embedding_size = self.embeddings.config.hidden_size
        self.embeddings_project = None
        if self.embedding_size != config.hidden_size:
            # ELECTRA's code has Glorot's uniform here, ALBERT's what all other matrices have.
            draw: keras.initializers.Initializer = GlorotUniform(seed + SEEDS_PER_LAYER - 2)
            if config.embedding_width:
                draw = initializer(config, seed + SEEDS_PER_LAYER - 2)
            self.embeddings_project = Dense(
                config.hidden_size, use_bias=config.use_bias, kernel_initializer=draw, name="embeddings_project"
            )
        self.relative_positions = None
        if config.relative_attention != "none":
            self.relative_positions = RelativePositions(config, seed + 4, name="relative_positions")
        layers = [
            EncoderLayer(config, seed + SEEDS_PER_LAYER * (index + 1), index == 0, name=f"layer_{index}")
            for index in range(config.weight_layers)
        ]
        # A shared layer is there L times, and each of its calls has dropout of its own.
        self.draws_per_call = config.num_hidden_layers // max(1, config.weight_layers)
        self.encoder_layers = layers * self.draws_per_call
        self.final_layer_norm = layer_norm(config, "final_layer_norm") if config.norm_place == "pre" else None
        self.pooler = keras.layers.Identity()
        if has_pooler:
            self.pooler = Pooler(config, head, seed + SEEDS_PER_LAYER - 1, name="pooler")

    def build(self, input_shape=None):
        if self.embeddings_project is not None:
            self.embeddings_project.build((None, None, self.embedding_size))
        super().build()

    def call(self, inputs, training=False):
        x = self.embeddings(inputs["input_ids"], inputs["segment_ids"], inputs.get("position_ids"), training=training)
        if self.embeddings_project is not None:
            x = self.embeddings_project(x)
        embedding_output = x
        views = self._views(inputs, training)
        outputs = []
        for index, layer in enumerate(self.encoder_layers):
            run = _rematerialized(layer) if self.rematerializes and training else layer
            x = run(x, *views[self.config.is_local(index)], training=training)
            outputs.append(x)
        if self.final_layer_norm is not None:
            x = outputs[-1] = self.final_layer_norm(x)
        pooled_output = self.pooler(self.pooled_tokens(x, inputs))
        return {
            "embedding_output": embedding_output,
            "encoder_outputs": outputs,
            "sequence_output": x,
            "pooled_output": pooled_output,
        }

    def _views(self, inputs, training: bool):
        """The `score_bias` and `positions` of `EncoderLayer`, for global layers (False) and for local ones (True).

        Local layers read only the blocks of keys that their window reaches, if the length is known and long enough.
        """
        config, index = self.config, ops.arange(ops.shape(inputs["input_ids"])[1])
        window, length = config.local_attention // 2, inputs["input_ids"].shape[1]
        only_padding = not config.causal and not {"sequence_ids", "reads_left"} & inputs.keys()
        drops = training and config.attention_probs_dropout_prob > 0
        is_plain = only_padding and not drops and self.relative_positions is None
        has_lengths = self.pads_on_the_right and is_plain and has_kernel(self.compute_dtype)

        def view(base: float, is_local: bool):
            block = window if is_local and length and length > 3 * window else 0

            def sides(x):
                """[B, T] of the queries, [B, 1, T, 1], and of the keys, [B, 1, 1, T]; both possibly in blocks."""
                if not block:
                    return x[:, None, :, None], x[:, None, None, :]
                x = x[:, None, :, None]
                return in_blocks(x, block), ops.swapaxes(in_blocks(x, block, True), -1, -2)

            attended = ops.cast(sides(inputs["input_mask"])[1], "float32")
            query, key = sides(index[None])
            if "sequence_ids" in inputs:
                attended = attended * ops.cast(ops.equal(*sides(inputs["sequence_ids"])), "float32")
            if config.causal:
                attended = attended * ops.cast(query >= key, "float32")
            elif "reads_left" in inputs:
                attended = attended * ops.cast((query >= key) | (sides(inputs["reads_left"])[0] == 0), "float32")
            if is_local:
                attended = attended * ops.cast(ops.abs(query - key) <= window, "float32")
            # Only distances count: positions in the row serve each sequence that is packed in it.
            positions = None
            if config.position_embedding == "rotary":
                positions = rotary_table(index, config.hidden_size // config.num_attention_heads, base)
            elif self.relative_positions is not None:
                positions = self.relative_positions(inputs["input_ids"])
            if has_lengths and not is_local:
                # cuDNN may give NaN for a row without any key.
                return ops.maximum(ops.sum(ops.cast(inputs["input_mask"], "int32"), axis=1), 1), positions
            return (1.0 - attended) * MASKED_SCORE, positions

        local = {True: view(config.local_rotary_base, True)} if window else {}
        return {False: view(config.rotary_base, False), **local}

    def pooled_tokens(self, x, inputs):
        """Inputs of the pooler: float [B, H], for packed rows with next sentences [B, S, H]."""
        if "next_sentence_positions" in inputs:
            return ops.take_along_axis(x, inputs["next_sentence_positions"][:, :, None], axis=1)
        if self.config.causal:
            last = ops.maximum(ops.sum(ops.cast(inputs["input_mask"], "int32"), axis=1) - 1, 0)
            return ops.take_along_axis(x, last[:, None, None], axis=1)[:, 0]
        if self.head == "norm_mean":
            mask = ops.cast(inputs["input_mask"], "float32")
            return ops.cast(pooled(ops.cast(x, "float32"), mask, "mean"), x.dtype)
        return x[:, 0]

    def get_config(self):
        if self._shares_embeddings:
            raise NotImplementedError(f"{self.name} shares its embeddings; save the model that contains it")
        return super().get_config()
