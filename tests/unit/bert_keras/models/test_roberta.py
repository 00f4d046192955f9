"""RoBERTa compared with `transformers`, and on real sentences."""

import dataclasses

import numpy as np
import pytest

from bert_keras.data.masking import MaskingSettings, MaskingVocabulary, mask_tokens
from bert_keras.models.pretraining_heads import RobertaForMaskedLM
from bert_keras.objectives.mlm import OBJECTIVE, example_sums
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of
from tests.support.models.tiny_encoders import roberta_config
from tests.support.models.tiny_language import overfit, real_sequences, summed
from tests.support.models.variants_of_transformers import Golden, roberta_names

TINY = roberta_config(2, 64, vocab_size=30, max_position_embeddings=12)


def batch(lengths=(12, 9, 3), length=12, predictions=4):
    generator = np.random.default_rng(1)
    mask = (np.arange(length) < np.array(lengths)[:, None]).astype("int32")
    return {
        "input_ids": generator.integers(5, 30, mask.shape) * mask,
        "input_mask": mask,
        "segment_ids": np.zeros_like(mask),
        "masked_lm_positions": generator.integers(0, min(lengths), (len(lengths), predictions)),
    }


@pytest.fixture(scope="module")
def model(random_bert):
    return random_bert(TINY, RobertaForMaskedLM)


def test_forward_equals_transformers():
    golden = Golden("roberta")
    config = roberta_config(2, 16, vocab_size=24, max_position_embeddings=12)
    model = RobertaForMaskedLM(dataclasses.replace(config, num_attention_heads=2))
    model.build()
    golden.assign(roberta_names(model))
    outputs = model({**golden.inputs, "masked_lm_positions": None})
    golden.assert_close(outputs["sequence_output"], outputs["mlm_logits"])


def test_roberta_configuration(model):
    config = roberta_config(12, 768)
    assert (config.vocab_size, config.type_vocab_size, config.layer_norm_eps) == (50265, 1, 1e-5)
    assert config.hidden_act == "gelu_erf"
    outputs = model(batch())
    assert "nsp_logits" not in outputs and not [v for v in model.weights if "pooler" in v.path]
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    assert outputs["mlm_logits"].shape == (3, 4, 30) and outputs["sequence_output"].shape == (3, 12, 64)


def test_padding_changes_nothing(model):
    short = batch(lengths=(7,), length=7)
    padded = {k: np.pad(v, ((0, 0), (0, 5))) if k != "masked_lm_positions" else v for k, v in short.items()}
    assert_equal_but_for_rounding(model(padded)["mlm_logits"], model(short)["mlm_logits"], depth_of(TINY, 12))


def test_sums_by_hand():
    """V = 2: logits (0, log 3) for label 1 (p = 3/4, hit), (0, 0) for label 1 (p = 1/2, tie goes to 0), padding."""
    outputs = {"mlm_logits": np.array([[[0, np.log(3)], [0, 0], [9, 0]]], "float32")}
    labels = {"masked_lm_ids": np.array([[1, 1, 1]]), "masked_lm_weights": np.array([[1, 1, 0]], "float32")}
    sums = {name: np.asarray(value) for name, value in example_sums(outputs, labels).items()}
    assert tuple(sums) == OBJECTIVE.sums
    assert_equal_but_for_rounding([sums[name][0] for name in OBJECTIVE.sums], [-np.log(3 / 8), 1, 2], 4)


@pytest.mark.slow
def test_real_sentences_are_learned_by_heart():
    """Masked as in fairseq: [CLS] and [SEP] too, with a stochastic number of masks."""
    features, tokenizer = real_sequences()
    masking = MaskingSettings(
        max_predictions_per_seq=6, rounding="stochastic", special_tokens=True, random_tokens="real"
    )
    vocabulary, rng = MaskingVocabulary.of(tokenizer), np.random.default_rng(3)
    features |= mask_tokens(features["input_ids"], features["input_mask"], rng, masking, vocabulary, 6)
    config = roberta_config(
        1,
        64,
        vocab_size=len(tokenizer.vocabulary),
        max_position_embeddings=20,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = RobertaForMaskedLM(config)

    def loss_of(outputs):
        sums = summed(example_sums(outputs, features))
        return sums["mlm_nll"] / sums["mlm_weight"]

    reached = overfit(model, features, loss_of, 200, 5e-3)
    sums = {name: float(value) for name, value in summed(example_sums(model(features), features)).items()}
    print(f"reached {reached:.4f}", sums)
    assert reached < 0.03
    assert sums["mlm_correct"] == sums["mlm_weight"] > 64
