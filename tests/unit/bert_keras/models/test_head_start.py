"""The head start: what drawn weights become, and that heads then read the neighbours they were given."""

import keras
import numpy as np
import pytest

from bert_keras.models import layers
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraForPreTraining
from bert_keras.models.head_start import head_start
from bert_keras.models.left_to_right import LeftToRightLM
from bert_keras.models.pretraining_heads import BertForPreTraining
from tests.support.models.small_training import built

V, T = 50, 40
# The last token has no vector.
VECTORS = np.random.default_rng(2).normal(size=(V, 40)) * (np.arange(V)[:, None] < V - 1)
LOG_P = np.log(np.linspace(1, 2, V) / np.linspace(1, 2, V).sum()).astype("float32")


def config(**fields):
    return BertConfig.size(2, 128, vocab_size=V, max_position_embeddings=T, initializer_range=0.05, **fields)


def text(rows):
    """Random tokens in one segment."""
    ids = np.random.default_rng(1).integers(5, V, (rows, T))
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}


def attention(backbone, monkeypatch):
    """Probabilities [A, T, T] of each layer, for random text in one segment."""
    found = []

    def softmax(x, axis=-1):
        found.append(np.array(keras.ops.nn.softmax(x, axis=axis))[0])
        return keras.ops.nn.softmax(x, axis=axis)

    monkeypatch.setattr(layers.ops, "softmax", softmax)
    backbone(text(1))
    return found


@pytest.mark.parametrize(
    ("make", "fields", "distances"),
    [
        (BertForPreTraining, {}, [1, -1, 2, -2]),
        (BertForPreTraining, {"position_embedding": "rotary", "rotary_base": 100.0}, [1, -1, 2, -2]),
        (LeftToRightLM, {"causal": True}, [-1, -2, -3, -4]),
        (BertForPreTraining, {"type_vocab_size": 0}, [1, -1, 2, -2]),
        (BertForPreTraining, {"embedding_width": 64, "shared_layers": True}, [1, -1, 1, -1]),
    ],
)
def test_each_head_reads_the_token_at_its_own_distance(make, fields, distances, monkeypatch):
    model = built(make, config(**fields), seed=3)
    before = [probs for layer in attention(model.backbone, monkeypatch) for probs in layer]
    head_start(model, LOG_P, VECTORS)
    after = [probs for layer in attention(model.backbone, monkeypatch) for probs in layer]
    for drawn, probs, distance in zip(before, after, distances, strict=True):
        inner = slice(4, T - 4)  # with all neighbours
        means = {d: np.diag(probs, d)[inner].mean() for d in range(-8, 9) if not fields.get("causal") or d <= 0}
        assert max(means, key=means.get) == distance
        assert means[distance] > 0.15 > 2 * np.diag(drawn, distance)[inner].mean()


def test_output_biases_are_the_unigram_model_and_the_position_table_stays():
    """The layer before the output passes on what it reads."""
    drawn, model = (built(BertForPreTraining, config(), seed=3) for _ in range(2))
    head_start(model, LOG_P, VECTORS)
    np.testing.assert_array_equal(model.mlm_head.output_bias, LOG_P)
    np.testing.assert_array_equal(model.mlm_head.dense.kernel, np.eye(128))
    changed = {
        mine.path.removeprefix(model.name)
        for mine, theirs in zip(model.weights, drawn.weights, strict=True)
        if not np.array_equal(mine, theirs)
    }
    tables = [f"/bert/embeddings/{name}_embeddings/embeddings" for name in ("word", "position", "token_type")]
    kernels = [f"/bert/layer_{i}/attention/{name}/kernel" for i in (0, 1) for name in ("query", "key")]
    assert changed == {*tables, *kernels, "/predictions/output_bias", "/predictions/transform/kernel"}
    trained = {variable.path for variable in model.trainable_variables}
    assert {v.path for v in model.weights} - trained == {f"{model.name}{tables[1]}"}


@pytest.mark.parametrize(("fields", "first"), [({}, 32), ({"position_embedding": "rotary"}, 0)])
def test_word_embeddings_begin_as_the_vectors_behind_the_sinusoids(fields, first):
    model = built(BertForPreTraining, config(**fields), seed=3)
    drawn = np.array(model.backbone.embeddings.word_embeddings.embeddings)
    head_start(model, LOG_P, VECTORS)
    words = np.array(model.backbone.embeddings.word_embeddings.embeddings)
    begun = words[:-1, first : first + 40]
    assert begun.std() == pytest.approx(0.2, rel=0.01)
    np.testing.assert_allclose(begun / VECTORS[:-1], np.full_like(begun, 0.2 / VECTORS[:-1].std()), rtol=0.01)
    for scaled, rest in ((words[-1, first:], drawn[-1, first:]), (words[:, first + 40 :], drawn[:, first + 40 :])):
        np.testing.assert_allclose(scaled, rest * 0.2 / drawn.std(), rtol=1e-5)


def test_more_frequencies_than_a_head_holds_are_shared_by_heads(monkeypatch):
    """Twelve heads of 64 in 768: 96 frequencies, of which each head reads 32."""
    model = built(BertForPreTraining, BertConfig.size(1, 768, vocab_size=V, max_position_embeddings=T), seed=3)
    head_start(model, LOG_P, VECTORS)
    (probs,) = attention(model.backbone, monkeypatch)
    strongest = [max(range(-9, 10), key=lambda d: np.diag(head, d)[9:-9].mean()) for head in probs]
    assert strongest == [1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6]


def test_a_projected_generator_keeps_its_attention():
    shape = ElectraConfig(config(), embedding_size=128, generator_size=0.5)
    drawn, model = (built(ElectraForPreTraining, shape, seed=3) for _ in range(2))
    head_start(model, LOG_P, VECTORS)

    def keys(electra):
        of = electra.generator.backbone, electra.discriminator.backbone
        return [np.array(backbone.encoder_layers[0].attention.key.kernel) for backbone in of]

    (generator, discriminator), (drawn_generator, drawn_discriminator) = keys(model), keys(drawn)
    np.testing.assert_array_equal(generator, drawn_generator)
    assert not np.array_equal(discriminator, drawn_discriminator)


def test_the_projection_of_albert_keeps_the_scale_of_embeddings():
    model = built(BertForPreTraining, config(embedding_width=64), seed=3)
    head_start(model, LOG_P, VECTORS)
    inputs = text(8)
    embedded = np.array(model.backbone.embeddings(inputs["input_ids"], inputs["segment_ids"]))
    projected = np.array(model.backbone(inputs)["embedding_output"])
    np.testing.assert_allclose(projected[..., :16], embedded[..., :16], rtol=1e-6)
    assert projected[..., 16:].std() == pytest.approx(embedded[..., 16:].std(), rel=0.1)
