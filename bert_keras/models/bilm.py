"""The biLM of ELMo (arXiv 1802.05365, sections 3.1 and 3.2), a rival of the BERT paper (figure 3, tables 1 and 7).

Sizes and layers are those of allenai/bilm-tf (`bilm/training.py`, `LanguageModel`). It reads a word by its characters;
here a token is read by those of its entry in the vocabulary, "##" too, so the inputs are BERT's token ids.
Shapes: B batch, T tokens, H hidden of both directions, U LSTM units, V vocabulary, n layers.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from bert_keras.errors import InputError
from bert_keras.models.backbone import ConfiguredModel
from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import Dropout, GlorotUniform, Normal, Uniform
from bert_keras.models.layers import MASKED_SCORE

# The CNN draws its initial weights from the first range of seeds, each direction from a further one.
SEEDS_PER_PART = 64
# Characters of a token, and the numbers that are not bytes (bilm-tf, bilm/data.py, `UnicodeCharsVocabulary`).
MAX_CHARACTERS, BEGIN, END, PAD = 50, 258, 259, 260
CHARACTER_SIZE, HIGHWAYS, CLIP = 16, 2, 3.0
# Filters of the widths 1 to 7; ELMo has 32 times as many.
FILTERS = (1, 1, 2, 4, 8, 16, 32)
# ELMo's 4,096 units a direction go with 2,048 filters.
UNITS_PER_FILTER = 2 * sum(FILTERS)


def characters_of(vocabulary: Sequence[str]) -> np.ndarray:
    """The characters of each token, int32 [V, 50]: up to 48 bytes between marks of beginning and end, then padding."""
    table = np.full((len(vocabulary), MAX_CHARACTERS), PAD, np.int32)
    for row, token in zip(table, vocabulary, strict=True):
        characters = [BEGIN, *token.encode()[: MAX_CHARACTERS - 2], END]
        row[: len(characters)] = characters
    return table


class CharacterEmbeddings(keras.layers.Layer):
    """Vectors of tokens from their characters: convolutions, two highway layers, a projection (section 3.1).

    Call: token ids int [B, T] -> float [B, T, H / 2]. The table `characters` (`characters_of`) is a weight that is not
    trained, and is stored with the others; the trainer fills it.
    """

    def __init__(self, config: BertConfig, seed: int, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = config.vocab_size
        glorot = (GlorotUniform(seed + number) for number in range(SEEDS_PER_PART))
        uniform = Uniform(seed + SEEDS_PER_PART - 1, 1.0)
        self.table = keras.layers.Embedding(PAD + 1, CHARACTER_SIZE, embeddings_initializer=uniform, name="characters")
        times = max(1, config.intermediate_size // UNITS_PER_FILTER)
        self.filters = [times * count for count in FILTERS]
        self.kernel_initializers = [next(glorot) for _ in FILTERS]
        self.width = sum(self.filters)
        # At first nearly all is carried over.
        carried = {"activation": "sigmoid", "bias_initializer": keras.initializers.Constant(-2.0)}
        self.highways = [
            [
                keras.layers.Dense(self.width, kernel_initializer=next(glorot), name=f"{name}_{number}", **kwargs)
                for name, kwargs in (("transform", {"activation": "relu"}), ("gate", carried))
            ]
            for number in range(HIGHWAYS)
        ]
        self.projection = keras.layers.Dense(
            config.hidden_size // 2, kernel_initializer=next(glorot), name="projection"
        )

    def build(self, input_shape):
        shape = (self.vocab_size, MAX_CHARACTERS)
        self.characters = self.add_weight(
            name="characters", shape=shape, dtype="int32", trainable=False, initializer="zeros"
        )
        self.table.build(None)
        self.kernels = [
            self.add_weight(name=f"width_{width}", shape=(width, CHARACTER_SIZE, count), initializer=initializer)
            for width, (count, initializer) in enumerate(zip(self.filters, self.kernel_initializers, strict=True), 1)
        ]
        self.bias = self.add_weight(name="filter_bias", shape=(self.width,), initializer="zeros")
        for layer in [layer for pair in self.highways for layer in pair] + [self.projection]:
            layer.build((None, self.width))

    def call(self, input_ids):
        ids = ops.reshape(input_ids, (-1,))
        x = self._convolved(self.table(ops.take(self.characters, ids, axis=0)))  # [B T, filters]
        for transform, gate in self.highways:
            weight = gate(x)
            x = weight * transform(x) + (1.0 - weight) * x
        return ops.reshape(self.projection(x), (*ops.shape(input_ids), -1))

    def _convolved(self, x):
        """The largest value of each filter over the places where it fits: [N, 50, 16] -> [N, filters]."""
        widest = len(FILTERS)
        # One product for all widths: each kernel is padded to the widest, and has places where it does not fit.
        padded = ops.pad(x, [[0, 0], [0, widest - 1], [0, 0]])
        windows = ops.concatenate([padded[:, i : i + MAX_CHARACTERS] for i in range(widest)], axis=-1)
        kernels = [ops.pad(kernel, [[0, widest - kernel.shape[0]], [0, 0], [0, 0]]) for kernel in self.kernels]
        kernel = ops.reshape(ops.concatenate(kernels, axis=-1), (widest * CHARACTER_SIZE, self.width))
        widths = np.repeat(np.arange(1, widest + 1), self.filters)
        fits = np.arange(MAX_CHARACTERS)[:, None] <= MAX_CHARACTERS - widths
        y = ops.matmul(windows, ops.cast(kernel, x.dtype)) + ops.cast(np.where(fits, 0.0, MASKED_SCORE), x.dtype)
        return ops.relu(ops.max(y, axis=1) + ops.cast(self.bias, x.dtype))


class _ProjectedCell(keras.layers.Layer):
    """A step of an LSTM whose state is projected to H / 2 and clipped (TensorFlow 1's `LSTMCell`).

    Its input is the product of x and the kernel, [B, 4 U], which the layer computes for all steps at once.
    """

    def __init__(self, units: int, size: int, seed: int, **kwargs):
        super().__init__(**kwargs)
        self.state_size, self.output_size = [size, units], size
        self.recurrent = keras.layers.Dense(
            4 * units, use_bias=False, kernel_initializer=GlorotUniform(seed), name="recurrent"
        )
        self.projection = keras.layers.Dense(
            size, use_bias=False, kernel_initializer=GlorotUniform(seed + 1), name="projection"
        )

    def build(self, input_shape):
        size, units = self.state_size
        self.recurrent.build((None, size))
        self.projection.build((None, units))

    def call(self, inputs, states, training=False):
        output, state = states
        entry, forget, new, exit_ = ops.split(inputs + self.recurrent(output), 4, axis=-1)
        # The bias of 1 keeps the state at first.
        state = ops.sigmoid(forget + 1.0) * state + ops.sigmoid(entry) * ops.tanh(new)
        state = ops.clip(state, -CLIP, CLIP)
        output = ops.clip(self.projection(ops.sigmoid(exit_) * ops.tanh(state)), -CLIP, CLIP)
        return output, [output, state]


class _LSTM(keras.layers.Layer):
    """One layer of one direction: float [B, T, H / 2], mask bool [B, T], its padding on the right -> the same shape."""

    def __init__(self, config: BertConfig, go_backwards: bool, seed: int, **kwargs):
        super().__init__(**kwargs)
        units, self.size = config.intermediate_size, config.hidden_size // 2
        self.supports_masking = True  # avoids Keras' warning about the timestep mask
        self.go_backwards = go_backwards
        self.dropout = Dropout(config.hidden_dropout_prob, seed=seed)
        self.gates = keras.layers.Dense(4 * units, kernel_initializer=GlorotUniform(seed + 1), name="gates")
        cell = _ProjectedCell(units, self.size, seed + 2, name="cell")
        self.steps = keras.layers.RNN(cell, return_sequences=True, go_backwards=go_backwards, name="steps")

    def build(self, input_shape):
        self.gates.build((None, None, self.size))
        self.steps.build((None, None, self.gates.units))

    def call(self, x, mask, training=False):
        y = self.steps(self.gates(self.dropout(x, training=training)), mask=mask)
        return ops.flip(y, axis=1) if self.go_backwards else y  # Keras returns the order of computation


class BiLMBackbone(ConfiguredModel):
    """Character embeddings, and forward and backward LSTM layers, residual from the second on.

    Of the configuration it reads `vocab_size`, `hidden_size`, `num_hidden_layers` (n, of each direction),
    `intermediate_size` (U, and by it the filters of the CNN), and `hidden_dropout_prob`, before every LSTM.

    Call with a dict of `input_ids` and `input_mask` int [B, T] (1 = token, 0 = padding, on the right). Returns a dict:
        `embedding_output` float [B, T, H]: the token's vector, twice (section 3.2);
        `encoder_outputs` list of n float [B, T, H]: each layer's, forward and backward side by side;
        `sequence_output` float [B, T, H]: the mean of all these, the features before any weight is learned.

    InputError: the rows are packed. An LSTM would carry its state from one sequence into the next.
    """

    has_pooler = False

    def __init__(self, config: BertConfig, seed: int = 0, embedding_size: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.embedding_size = config.hidden_size  # the only one
        self.embeddings = CharacterEmbeddings(config, seed, name="embeddings")
        self.pooler = keras.layers.Identity()
        self.directions = [
            [
                _LSTM(config, way == "backward", seed + SEEDS_PER_PART * number + 4 * layer, name=f"layer_{layer}")
                for layer in range(config.num_hidden_layers)
            ]
            for number, way in enumerate(("forward", "backward"), 1)
        ]

    def call(self, inputs, training=False):
        if "sequence_ids" in inputs:
            raise InputError("the rows are packed; a biLM needs one sequence per row: set examples.packing=false")
        token = self.embeddings(inputs["input_ids"])
        mask = ops.cast(inputs["input_mask"], "bool")
        outputs = []
        for layers in self.directions:
            states = [token]
            for number, layer in enumerate(layers):
                y = layer(states[-1], mask, training=training)
                states.append(states[-1] + y if number else y)
            outputs.append(states)
        first, *others = [ops.concatenate(pair, axis=-1) for pair in zip(*outputs, strict=True)]
        mean = sum(others, first) / len(outputs[0])
        return {"embedding_output": first, "encoder_outputs": others, "sequence_output": mean}


class BiLM(ConfiguredModel):
    """A forward and a backward language model on a `BiLMBackbone`, with one softmax.

    Call with the backbone's inputs. Returns its outputs and
        `forward_lm_logits` float [B, T, V]: those at t predict the token at t + 1;
        `backward_lm_logits` float [B, T, V]: those at t predict the token at t - 1.
    """

    # Dropout before the softmax draws once for each direction.
    draws_per_call = 2

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.backbone = BiLMBackbone(config, seed, name="bilm")
        head_seed = seed + 3 * SEEDS_PER_PART
        self.dropout = Dropout(config.hidden_dropout_prob, seed=head_seed)
        initializer = Normal(head_seed + 1, (config.hidden_size // 2) ** -0.5)
        self.lm_head = keras.layers.Dense(config.vocab_size, kernel_initializer=initializer, name="predictions")

    @property
    def width(self) -> int:
        return self.config.hidden_size // 2

    def call(self, inputs, training=False):
        outputs = self.backbone(inputs, training=training)
        ways = zip(("forward", "backward"), ops.split(outputs["encoder_outputs"][-1], 2, axis=-1), strict=True)
        logits = {f"{way}_lm_logits": self.lm_head(self.dropout(x, training=training)) for way, x in ways}
        return {**outputs, **logits}
