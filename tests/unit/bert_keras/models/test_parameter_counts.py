"""Parameter counts of every published size, to the last one; nothing of that size is allocated."""

import functools

import keras
import pytest

from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraDiscriminator, ElectraForPreTraining
from bert_keras.models.layers import EncoderLayer
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from tests.support.models import electra_sizes
from tests.support.models.tiny_encoders import roberta_config


@pytest.fixture
def built():
    """Makes and builds a model whose variables have shapes, but no values: 336 million would be 1.3 GB."""
    models = []

    def build(make):
        with keras.StatelessScope(initialize_variables=False):
            models.append(make())
            models[-1].build(None)
        return models[-1]

    yield build
    assert all(variable._value is None for model in models for variable in model.weights)
    # Else Keras gives them values when the next such scope ends.
    keras.backend.clear_session()


@pytest.mark.parametrize(
    ("layers", "hidden", "vocab", "encoder", "with_mlm", "with_nsp"),
    [
        (12, 768, 30522, 109_482_240, 110_104_890, 110_106_428),
        (12, 768, 28996, 108_310_272, 108_931_396, 108_932_934),
        (24, 1024, 30522, 335_141_888, 336_224_058, 336_226_108),
        (24, 1024, 28996, 333_579_264, 334_659_908, 334_661_958),
    ],
    ids=["base uncased", "base cased", "large uncased", "large cased"],
)
def test_base_and_large(built, layers, hidden, vocab, encoder, with_mlm, with_nsp):
    model = built(lambda: BertForPreTraining(BertConfig.size(layers, hidden, vocab_size=vocab)))
    assert model.backbone.count_params() == encoder
    assert model.backbone.count_params() + model.mlm_head.count_params() == with_mlm
    assert model.count_params() == with_nsp


@pytest.mark.parametrize(
    ("layers", "hidden", "encoder", "with_heads"),
    [
        (2, 128, 4_385_920, 4_433_468),
        (4, 256, 11_170_560, 11_267_900),
        (4, 512, 28_763_648, 29_058_876),
        (8, 512, 41_373_184, 41_668_412),
    ],
    ids=["tiny", "mini", "small", "medium"],
)
def test_tiny_to_medium(built, layers, hidden, encoder, with_heads):
    """Counts of `BertModel` and `BertForPreTraining` of `transformers` at these sizes (arXiv 1908.08962)."""
    model = built(lambda: BertForPreTraining(BertConfig.size(layers, hidden)))
    assert (model.backbone.count_params(), model.count_params()) == (encoder, with_heads)


@pytest.mark.parametrize(("hidden", "parameters"), [(768, 7_087_872), (1024, 12_596_224)])
def test_an_encoder_layer(built, hidden, parameters):
    assert built(lambda: EncoderLayer(BertConfig.size(12, hidden))).count_params() == parameters


@pytest.mark.parametrize(("layers", "hidden", "published"), [(12, 768, 124_697_433), (24, 1024, 355_412_057)])
def test_roberta(built, layers, hidden, published):
    """125 and 355 million in the paper; exactly, what `transformers` counts of roberta-base and roberta-large.

    Its files have two more rows of positions, of no token.
    """
    model = built(lambda: RobertaForMaskedLM(roberta_config(layers, hidden)))
    assert model.count_params() == published - 2 * hidden
    assert model.backbone.embeddings.position_embeddings.embeddings.shape == (512, hidden)


@pytest.mark.parametrize(
    ("config", "encoder", "with_head"),
    [
        (electra_sizes.SMALL, 13_483_008, 13_549_057),
        # BERT's without the pooler; the head is as large as the pooler, plus one output.
        (electra_sizes.BASE, 109_482_240 - 590_592, 109_482_240 + 769),
        (electra_sizes.LARGE, 335_141_888 - 1_049_600, 335_141_888 + 1025),
    ],
    ids=["small", "base", "large"],
)
def test_electras_discriminator(built, config, encoder, with_head):
    model = built(lambda: ElectraDiscriminator(config))
    assert model.backbone.count_params() == encoder
    assert model.count_params() == with_head


@pytest.mark.parametrize(
    ("layers", "hidden", "encoder", "masked_lm", "whole"),
    [
        (12, 768, 11_683_584, 11_221_680, 11_813_810),
        (24, 1024, 17_683_968, 16_795_824, 17_847_474),
        (24, 2048, 58_724_864, 54_821_040, 59_021_490),
    ],
    ids=["base", "large", "xlarge"],
)
def test_albert(built, layers, hidden, encoder, masked_lm, whole):
    """12, 18 and 60 million in the paper (table 1); exactly, what `transformers` 5.23.0 counts at these sizes.

    Of AlbertModel, which has a pooler, of AlbertForMaskedLM, which has none, and of AlbertForPreTraining.
    """
    shape = BertConfig.size(layers, hidden, vocab_size=30000, embedding_width=128, shared_layers=True)
    makers = (BertBackbone, RobertaForMaskedLM, BertForPreTraining)
    assert [built(functools.partial(make, shape)).count_params() for make in makers] == [encoder, masked_lm, whole]


def test_parameters_of_the_small_generator(built):
    assert built(lambda: ElectraForPreTraining(electra_sizes.SMALL)).count_params() == 13_549_057 + 647_162
