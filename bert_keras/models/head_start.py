"""Initial weights that know what every BERT learns first.

T positions, H hidden, E width of the embeddings, A heads, D = H / A, V vocabulary.

A drawn model spends its first steps on things that need not be learned: how frequent each token is, which tokens are
alike, and which positions are next to each other. Nothing else is changed: the architecture is the same, and all of it
is learned on.
"""

import keras
import numpy as np

from bert_keras.models.backbone import BertBackbone
from bert_keras.models.pretraining_heads import MaskedLMHead

# The score of the neighbour that a head reads, before the softmax; that of a position far from it is about 0.
PEAK = 10.0
# Wavelengths of the sinusoids in a position table go from 2 pi to this times 2 pi positions.
LONGEST = 100.0
# Scale of the sinusoids in the sum of the embeddings, over the word embeddings': all layers can then read positions.
AMPLITUDE = 3.0
# Standard deviation of word embeddings that are not drawn: a step of the optimizer then moves them little.
SPREAD = 0.2


def head_start(model: keras.Model, log_p: np.ndarray, vectors: np.ndarray) -> None:
    """Change the drawn weights of a model.

    - Output biases of heads that predict tokens begin as `log_p`, float32 [V]: the unigram model.
    - Word embeddings begin as `vectors`, float32 [V, up to H] (`bert_keras.objectives.unigram.neighbour_vectors`), as
      far as they go; a token without one has what was drawn, on the same scale.
    - The layer before the output, where its width is the encoder's, begins by passing on what it reads, as the output
      is a product with the word embeddings.
    - Each head of the encoder reads the token at a distance of its own: 1, -1, 2, -2, ..., in a causal model -1, -2,
      ... Its query and key see the same sinusoids of the position, the query's turned by the distance (arXiv
      1706.03762, section 3.5: the position at a fixed distance is a rotation).
    - For that, a learned position table begins as sinusoids in a quarter of the embeddings' dimensions, where the
      others begin with 0. It is not trained: Adam moves each row on its own, and a table that changes as fast as the
      word embeddings is no longer sinusoids after ten steps.
    - ALBERT's projection of its embeddings passes the sinusoids on as they are, and its other outputs begin with the
      variance of its other inputs.

    Attention is as drawn with rotary positions without biases, and in a network of ELECTRA whose embeddings are
    projected: a discriminator that reads neighbours learned no faster (benchmarks/training/ablations.md).
    """
    for variable in model.weights:
        if variable.path.endswith("/output_bias"):
            variable.assign(log_p)
    for layer in model._flatten_layers():
        if isinstance(layer, MaskedLMHead) and layer.dense.kernel.shape[0] == layer.dense.units:
            layer.dense.kernel.assign(np.eye(layer.dense.units))
        if isinstance(layer, BertBackbone) and (layer.embeddings_project is None or layer.config.embedding_width):
            _know_words(layer, vectors)
            _read_neighbours(layer)


def _know_words(backbone: BertBackbone, vectors: np.ndarray) -> None:
    """Set the word embeddings, behind the dimensions of `_sinusoids`."""
    table, width = backbone.embeddings.word_embeddings.embeddings, backbone.embedding_size
    rows = np.array(table) * SPREAD / max(float(np.std(table)), 1e-9)
    first = 2 * max(1, width // 8) if backbone.config.position_embedding == "learned" else 0
    vectors = vectors[:, : width - first]
    known = vectors.any(1)
    if known.any():
        size = np.sqrt(np.square(vectors[known]).mean())
        rows[known, first : first + vectors.shape[1]] = vectors[known] * SPREAD / size
        table.assign(rows)


def _read_neighbours(backbone: BertBackbone) -> None:
    config = backbone.config
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    if config.position_embedding == "learned":
        frequencies, amplitude = _sinusoids(backbone)
    for number, layer in enumerate(dict.fromkeys(backbone.encoder_layers)):
        index = number * heads + np.arange(heads)
        distances = -1 - index if config.causal else (index // 2 + 1) * (1 - 2 * (index % 2))
        query, key = layer.attention.query, layer.attention.key
        if config.position_embedding == "learned":
            for dense, turns in ((query, distances), (key, np.zeros(heads))):
                dense.kernel.assign(dense.kernel + _readers(frequencies, turns, size, config.hidden_size, amplitude))
        elif config.use_bias and config.position_embedding == "rotary":
            # A bias is the same vector at every position, which the rotation then turns by the position.
            base = config.local_rotary_base if config.is_local(number) else config.rotary_base
            turns = distances[:, None] * base ** (-np.arange(size // 2) / (size // 2))  # [A, D / 2]
            gain = np.sqrt(PEAK * np.sqrt(size) / (size // 2))
            query.bias.assign(gain * np.concatenate([np.cos(turns), np.sin(turns)], axis=1).reshape(-1))
            key.bias.assign(gain * np.concatenate([np.ones_like(turns), np.zeros_like(turns)], axis=1).reshape(-1))


def _sinusoids(backbone: BertBackbone) -> tuple[np.ndarray, float]:
    """Make the position table, a quarter of it sinusoids; return the first layer's frequencies and their amplitude."""
    embeddings, width = backbone.embeddings, backbone.embedding_size
    pairs = max(1, width // 8)
    frequencies = LONGEST ** (-np.arange(pairs) / pairs)
    tables = [embeddings.word_embeddings.embeddings]
    if backbone.config.type_vocab_size:
        tables.append(embeddings.token_type_embeddings.embeddings)
    variance = float(np.var(tables[0]))
    for table in tables:
        rows = np.array(table)
        rows[:, : 2 * pairs] = 0.0
        table.assign(rows)
    angles = np.arange(backbone.config.max_position_embeddings)[:, None] * frequencies  # [T, E / 8]
    positions = np.zeros((len(angles), width))
    positions[:, : 2 * pairs] = np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(len(angles), -1)
    embeddings.position_embeddings.embeddings.assign(positions * AMPLITUDE * np.sqrt(2.0 * variance))
    embeddings.position_embeddings.trainable = False
    share = 2 * pairs / width
    amplitude = AMPLITUDE * np.sqrt(2.0 / (share * AMPLITUDE**2 + (1.0 - share) * len(tables)))
    if backbone.embeddings_project is None:
        return frequencies, amplitude
    passed = np.arange(0, pairs, -(-pairs // max(1, backbone.config.hidden_size // 8)))
    _pass_on(backbone.embeddings_project, passed, 2 * pairs)
    return frequencies[passed], amplitude


def _pass_on(project: keras.layers.Dense, passed: np.ndarray, sinusoids: int) -> None:
    """Let a projection [E, H] copy the `passed` ones of the `sinusoids`, its first inputs, to its first outputs."""
    kernel, columns = np.array(project.kernel), 2 * len(passed)
    kernel[:sinusoids] = kernel[:, :columns] = 0.0
    kernel[sinusoids:, columns:] /= np.std(kernel[sinusoids:, columns:]) * np.sqrt(len(kernel) - sinusoids)
    kernel[[2 * passed, 2 * passed + 1], [np.arange(0, columns, 2), np.arange(1, columns, 2)]] = 1.0
    project.kernel.assign(kernel)


def _readers(frequencies: np.ndarray, turns: np.ndarray, size: int, hidden: int, amplitude: float) -> np.ndarray:
    """A kernel [H, A D] whose head `a` reads the sinusoids, turned by `turns[a]` positions."""
    step = -(-len(frequencies) // (size // 2))  # so many heads share the frequencies
    kernel = np.zeros((hidden, len(turns), size))
    for head, turn in enumerate(turns):
        read = np.arange(head % step, len(frequencies), step)
        gain = np.sqrt(PEAK * np.sqrt(size) / len(read)) / amplitude
        cosine, sine = gain * np.cos(turn * frequencies[read]), gain * np.sin(turn * frequencies[read])
        columns = 2 * np.arange(len(read))
        kernel[2 * read, head, columns] = kernel[2 * read + 1, head, columns + 1] = cosine
        kernel[2 * read, head, columns + 1], kernel[2 * read + 1, head, columns] = sine, -sine
    return kernel.reshape(hidden, -1)
