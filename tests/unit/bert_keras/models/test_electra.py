"""ELECTRA compared with `transformers` and with labels by hand."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.models import dropout
from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import RandomStates
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraForPreTraining, ElectraGenerator
from bert_keras.objectives.electra import example_sums, replaced_tokens
from bert_keras.training.optimizer import layer_multiplier
from tests.support.models import electra_sizes
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of
from tests.support.models.tiny_language import summed
from tests.support.models.variants_of_transformers import Golden, discriminator_names, generator_names

V, T, MASK = 30, 12, 4
TINY = ElectraConfig(BertConfig(V, 32, 2, 2, 64, max_position_embeddings=T, hidden_act="gelu_erf"), 24, 1 / 4)
DEPTH = depth_of(TINY.discriminator, T)


def batch(lengths=(12, 9, 4), length=T):
    """Rows with two masks each, at 1 and 3, and a third place for a prediction that is not used."""
    generator = np.random.default_rng(1)
    mask = (np.arange(length) < np.array(lengths)[:, None]).astype("int32")
    ids = generator.integers(5, V, mask.shape) * mask
    features = {
        "input_mask": mask,
        "segment_ids": np.zeros_like(mask),
        "masked_lm_positions": np.tile([1, 3, 0], (len(lengths), 1)),
        "masked_lm_ids": ids[:, [1, 3, 0]] * [1, 1, 0],
        "masked_lm_weights": np.tile(np.array([1, 1, 0], "float32"), (len(lengths), 1)),
    }
    ids[:, [1, 3]] = MASK
    return {"input_ids": ids, **features}


@pytest.fixture(scope="module")
def model(random_bert):
    return random_bert(TINY, ElectraForPreTraining)


@pytest.mark.parametrize(
    ("config", "hidden", "heads", "layers"),
    [
        (electra_sizes.SMALL, 64, 1, 12),
        (electra_sizes.BASE, 256, 4, 12),
        (electra_sizes.LARGE, 256, 4, 24),
        (dataclasses.replace(electra_sizes.SMALL, generator_size=1.0), 256, 4, 12),
    ],
)
def test_sizes_of_the_generator(config, hidden, heads, layers):
    generator = config.generator
    assert (generator.hidden_size, generator.intermediate_size) == (hidden, 4 * hidden)
    assert (generator.num_attention_heads, generator.num_hidden_layers) == (heads, layers)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"embedding_size": 0}, "embedding_size is 0"),
        ({"generator_size": 0.0}, "generator_size is 0.0; it must be in"),
        ({"generator_size": 1.5}, "generator_size is 1.5; it must be in"),
        ({"generator_size": 0.01}, "generator_size is 0.01; the generator would have no width"),
    ],
)
def test_invalid_configurations_are_named(change, names):
    with pytest.raises(ValueError, match=names):
        dataclasses.replace(TINY, **change)


def test_dropout_differs_between_steps_and_encoders_and_resumes_exactly(monkeypatch):
    """The embeddings' dropout draws for the generator and for the discriminator: no draw of it comes twice."""

    def masks_of(call):
        drawn = []
        monkeypatch.setattr(
            dropout, "random_bits", lambda shape, seed: drawn.append(bits := random_bits(shape, seed)) or bits
        )
        with keras.StatelessScope(states.of(tf.constant(call, tf.int64))):
            model(batch(), training=True)
        return [np.asarray(bits).tobytes() for bits in drawn]

    random_bits, model = dropout.random_bits, ElectraForPreTraining(TINY)
    model.build()
    states = RandomStates(model)
    steps = [masks_of(call) for call in range(4)]
    assert len(steps[0]) == 2 * (1 + 2 * 3)  # of each encoder: embeddings, and three a layer
    assert len({mask for step in steps for mask in step}) == sum(map(len, steps))
    assert masks_of(2) == steps[2]


def test_embeddings_are_shared(model):
    """Word, position and segment embeddings and their layer normalisation; each width has a projection of its own."""
    assert model.generator.backbone.embeddings is model.discriminator.backbone.embeddings is model.embeddings
    shared = [v for v in model.weights if "/embeddings/" in v.path]
    assert sorted(tuple(v.shape) for v in shared) == sorted([(V, 24), (T, 24), (2, 24), (24,), (24,)])
    projections = [tuple(v.shape) for v in model.weights if v.path.endswith("embeddings_project/kernel")]
    assert sorted(projections) == [(24, 8), (24, 32)]
    before = {k: np.asarray(v) for k, v in model(batch()).items() if k in ("mlm_logits", "discriminator_logits")}
    table = model.embeddings.token_type_embeddings
    stored = table.get_weights()
    table.set_weights([stored[0] + np.linspace(0, 1, 24)])
    after = model(batch())
    table.set_weights(stored)
    for name, values in before.items():
        assert np.abs(values - after[name]).max() > 1e-2, name


def test_gradient_disentangled_sharing_keeps_the_losses_apart(random_bert):
    """The discriminator's loss changes its own table, the generator's loss the shared one (arXiv 2111.09543, 3.2)."""
    config = ElectraConfig(dataclasses.replace(TINY.discriminator, position_embedding="none"), 32, 1.0, 1, "gdes")
    model, features = random_bert(config, ElectraForPreTraining), batch()
    shared, added = (m.backbone.embeddings.word_embeddings.embeddings for m in (model.generator, model.discriminator))
    assert len(model.generator.backbone.encoder_layers) == 1 and shared.shape == added.shape
    with tf.GradientTape(persistent=True) as tape:
        sums = summed(example_sums(model(features), features))
    for name, learns, rests in (("disc_nll", added, shared), ("mlm_nll", shared, added)):
        changed, kept = tape.gradient(sums[name], [learns.value, rests.value])
        assert np.abs(tf.convert_to_tensor(changed)).max() > 0 and kept is None
    read = model.discriminator.backbone.embeddings.word_embeddings(features["input_ids"])
    np.testing.assert_array_equal(
        read, np.asarray(added)[features["input_ids"]] + np.asarray(shared)[features["input_ids"]]
    )


def test_a_backbone_with_shared_embeddings_is_not_saved_alone(model):
    with pytest.raises(NotImplementedError, match="electra shares its embeddings; save the model"):
        model.discriminator.backbone.get_config()


def golden_models():
    """Both models with the weights of `transformers`, and its recorded outputs."""
    common = {"max_position_embeddings": 12, "hidden_act": "gelu_erf"}
    config = ElectraConfig(BertConfig(24, 16, 2, 2, 64, **common), 12, 1 / 2)
    discriminator, golden_discriminator = ElectraDiscriminator(config), Golden("electra_discriminator")
    generator, golden_generator = ElectraGenerator(config), Golden("electra_generator")
    discriminator.build()
    generator.build()
    golden_discriminator.assign(discriminator_names(discriminator))
    golden_generator.assign(generator_names(generator))
    return config, (discriminator, golden_discriminator), (generator, golden_generator)


def test_forward_equals_transformers():
    _, (discriminator, golden_discriminator), (generator, golden_generator) = golden_models()
    outputs = discriminator(golden_discriminator.inputs)
    golden_discriminator.assert_close(outputs["sequence_output"], outputs["discriminator_logits"])
    outputs = generator({**golden_generator.inputs, "masked_lm_positions": None})
    golden_generator.assert_close(outputs["sequence_output"], outputs["mlm_logits"])


def test_both_models_together_equal_each_alone():
    """With one set of embeddings, and the discriminator reads what was sampled."""
    config, (discriminator, golden), (generator, _) = golden_models()
    model = ElectraForPreTraining(config)
    model.build()
    for ours, theirs in ((model.discriminator, discriminator), (model.generator, generator)):
        ours.set_weights(theirs.get_weights())
    features = {
        **golden.inputs,
        "masked_lm_positions": np.tile([1, 4, 0], (4, 1)),
        "masked_lm_weights": np.tile([1.0, 1.0, 0.0], (4, 1)),
    }
    outputs = model(features)
    depth = depth_of(config.discriminator, T)
    assert_equal_but_for_rounding(outputs["mlm_logits"], generator(features)["mlm_logits"], depth)
    alone = discriminator({**golden.inputs, "input_ids": outputs["sampled_ids"]})["discriminator_logits"]
    assert_equal_but_for_rounding(outputs["discriminator_logits"], alone, depth)


def test_a_correct_guess_is_an_original(model):
    """The generator is made to say one token everywhere: the right one at a place where that is the token."""
    features = batch()
    guess = int(features["masked_lm_ids"][0, 0])
    assert features["masked_lm_ids"][0, 1] != guess
    bias = model.generator.mlm_head.output_bias
    stored = np.asarray(bias)
    bias.assign(np.where(np.arange(V) == guess, 1e6, 0))
    sampled_ids = np.asarray(model(features)["sampled_ids"])
    bias.assign(stored)
    np.testing.assert_array_equal(sampled_ids[:, [1, 3]], guess)
    expected = np.zeros((3, T), bool)
    expected[:, [1, 3]] = features["masked_lm_ids"][:, :2] != guess
    assert not expected[0, 1] and expected[0, 3]
    np.testing.assert_array_equal(replaced_tokens(sampled_ids, features), expected)
    # Where nothing is masked, the text is as it was; the unused prediction, at 0, puts nothing there.
    unmasked = np.delete(np.arange(T), [1, 3])
    np.testing.assert_array_equal(sampled_ids[:, unmasked], features["input_ids"][:, unmasked])


def test_no_gradient_goes_through_the_samples(model):
    """The discriminator's loss trains the embeddings, but nothing else of the generator."""
    features = batch()
    with tf.GradientTape(persistent=True) as tape:
        sums = summed(example_sums(model(features), features))
        discriminator_loss, generator_loss = sums["disc_nll"], sums["mlm_nll"]
    own = [v.value for v in model.generator.trainable_variables if "/embeddings/" not in v.path]
    assert len(own) == 2 + 2 * 16 + 5
    assert all(gradient is None for gradient in tape.gradient(discriminator_loss, own))
    assert all(gradient is not None for gradient in tape.gradient(generator_loss, own))
    table = model.embeddings.word_embeddings.embeddings.value
    for one in (discriminator_loss, generator_loss):
        assert np.abs(tf.convert_to_tensor(tape.gradient(one, table))).max() > 0


def test_layer_wise_rates_find_the_layers(model):
    """Embeddings and their projection are at depth 0, as in the original's optimizer."""
    by_name = {v.path.split("electra/", 1)[-1]: layer_multiplier(v.path, 0.8, 2) for v in model.discriminator.weights}
    assert by_name["embeddings_project/kernel"] == pytest.approx(0.8**4)
    assert by_name["layer_0/attention/query/kernel"] == pytest.approx(0.8**3)
    (head,) = (rate for name, rate in by_name.items() if name.endswith("discriminator_predictions_output/kernel"))
    assert head == 1.0
    (table,) = (v.path for v in model.weights if "word_embeddings" in v.path)
    assert layer_multiplier(table, 0.8, 2) == pytest.approx(0.8**4)
