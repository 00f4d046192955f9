"""Every kind of pre-training learns 64 real sentences by heart: to the least loss that there is."""

import dataclasses

import numpy as np
import pytest

from bert_keras.models.bilm import BiLM, characters_of
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraForPreTraining
from bert_keras.models.left_to_right import LeftToRightLM
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from bert_keras.models.spanbert import SpanBertForPreTraining
from bert_keras.objectives import electra, mlm, mlm_nsp, next_token, span_boundary
from tests.support.models.masked_sentences import masked_sentences, spans
from tests.support.models.tiny_encoders import roberta_config
from tests.support.models.tiny_language import least_loss, overfit, real_pairs, real_sequences, summed
from tests.support.models.whole_loss import whole

pytestmark = pytest.mark.slow
COMMON = {
    "max_position_embeddings": 20,
    "initializer_range": 0.1,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def config(tokenizer, layers=1, **fields):
    fields = {"intermediate_size": 128, **COMMON, **fields}
    return BertConfig(len(tokenizer.vocabulary), 64, layers, 2, **fields)


def learned(model, features, objective, steps, rate, loss=None):
    """The loss that is reached, of all sums or by `loss`, and the sums, a weight each of tokens that are predicted."""
    loss = loss or (lambda sums: whole(objective.loss, sums))
    reached = overfit(model, features, lambda x: loss(summed(objective.example_sums(x, features))), steps, rate)
    sums = summed(objective.example_sums(model(features), features))
    sums = {name: float(value) for name, value in sums.items()}
    print(f"reached {reached:.4f}", sums)
    return reached, sums


def test_pairs():
    features, tokenizer = real_pairs()
    model = BertForPreTraining(config(tokenizer, intermediate_size=256, max_position_embeddings=40))
    reached, sums = learned(model, features, mlm_nsp.OBJECTIVE, 300, 4e-3)
    assert reached < 0.03
    assert sums["mlm_correct"] == sums["mlm_weight"] and sums["nsp_correct"] == sums["nsp_weight"]


def test_masked_tokens():
    """As in fairseq: [CLS] and [SEP] too, with a stochastic number of masks."""
    features, tokenizer = masked_sentences(6, rounding="stochastic", special_tokens=True, random_tokens="real")
    model = RobertaForMaskedLM(roberta_config(1, 64, vocab_size=len(tokenizer.vocabulary), **COMMON))
    reached, sums = learned(model, features, mlm.OBJECTIVE, 200, 5e-3)
    assert reached < 0.03
    assert sums["mlm_correct"] == sums["mlm_weight"] > 64


def test_span_boundaries():
    features, tokenizer = spans()
    model = SpanBertForPreTraining(config(tokenizer), max_pair_targets=20)
    reached, sums = learned(model, features, span_boundary.OBJECTIVE, 200, 5e-3)
    assert reached < 0.03
    assert sums["sbo_correct"] == sums["sbo_weight"] > 64


def test_next_tokens():
    """To the minimum loss of a model that does not see its targets; not below."""
    features, tokenizer = real_sequences()
    model = LeftToRightLM(config(tokenizer, layers=2, causal=True))
    reached, _ = learned(model, features, next_token.OBJECTIVE, 200, 5e-3)
    assert least_loss(features) - 1e-4 < reached < least_loss(features) + 0.02


def test_next_and_previous_tokens():
    """Both directions, to the least loss that there is."""
    features, tokenizer = real_sequences()
    model = BiLM(BertConfig(len(tokenizer.vocabulary), 128, 1, 1, 128, hidden_dropout_prob=0.0, encoder="bilm"))
    model.build()
    model.backbone.embeddings.characters.assign(characters_of(tokenizer.vocabulary))
    _, sums = learned(model, features, next_token.BIDIRECTIONAL_OBJECTIVE, 400, 1e-2)
    for direction in ("forward", "backward"):
        reached = sums[f"{direction}_lm_nll"] / sums[f"{direction}_lm_weight"]
        assert least_loss(features) - 1e-4 < reached < least_loss(features) + 0.02


@pytest.fixture(scope="module")
def for_electra():
    """Masked sentences, and a small model for them."""
    features, tokenizer = masked_sentences(4, mask_fraction=0.85, keep_fraction=0.15)
    shape = ElectraConfig(dataclasses.replace(config(tokenizer), hidden_act="gelu_erf"), 32, 1 / 2)
    return features, ElectraForPreTraining(shape)


def test_replaced_tokens(for_electra):
    """The generator learns to guess right: in the end few tokens are replaced."""
    features, model = for_electra
    _, sums = learned(ElectraForPreTraining(model.config), features, electra.OBJECTIVE, 600, 5e-3)
    assert sums["mlm_nll"] / sums["mlm_weight"] < 0.05
    assert sums["mlm_correct"] == sums["mlm_weight"] > 64
    assert sums["disc_correct"] / sums["disc_weight"] > 0.99


def test_a_discriminator_detects_a_bad_generator(for_electra):
    """The generator is not trained, so that it guesses wrong; the draws that are judged are new ones."""
    features, model = for_electra
    learned(model, features, electra.OBJECTIVE, 600, 5e-3, lambda sums: sums["disc_nll"] / sums["disc_weight"])
    outputs = model(features)
    replaced = np.asarray(electra.replaced_tokens(outputs["sampled_ids"], features))
    said = np.asarray(outputs["discriminator_logits"]) > 0
    real_tokens = features["input_mask"] == 1
    accuracy, recall = (said == replaced)[real_tokens].mean(), said[replaced].mean()
    print(f"replaced {replaced.sum()} of {real_tokens.sum()}, accuracy {accuracy:.4f}, recall {recall:.4f}")
    assert replaced.sum() > 100
    assert accuracy > 0.99 and recall > 0.95
