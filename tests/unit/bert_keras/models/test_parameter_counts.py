"""Parameter counts of every published size, to the last one; nothing of that size is allocated."""

import dataclasses
import functools
import math

import keras
import pytest

from bert_keras.models.backbone import BertBackbone
from bert_keras.models.bilm import BiLMBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraDiscriminator, ElectraForPreTraining
from bert_keras.models.layers import EncoderLayer
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from bert_keras.models.task_models import BertForTokenClassification
from pipeline.recipes.language_models import elmo
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
    keras.backend.clear_session(free_memory=False)


@pytest.mark.parametrize(
    ("layers", "hidden", "vocab", "encoder", "masked_lm", "whole"),
    [
        (12, 768, 30522, 109_482_240, 110_104_890, 110_106_428),
        (12, 768, 28996, 108_310_272, 108_931_396, 108_932_934),
        (24, 1024, 30522, 335_141_888, 336_224_058, 336_226_108),
        (24, 1024, 28996, 333_579_264, 334_659_908, 334_661_958),
        # Of `BertModel` and `BertForPreTraining` of `transformers` at the sizes of arXiv 1908.08962.
        (2, 128, 30522, 4_385_920, None, 4_433_468),
        (4, 256, 30522, 11_170_560, None, 11_267_900),
        (4, 512, 30522, 28_763_648, None, 29_058_876),
        (8, 512, 30522, 41_373_184, None, 41_668_412),
    ],
    ids=["base uncased", "base cased", "large uncased", "large cased", "tiny", "mini", "small", "medium"],
)
def test_bert(built, layers, hidden, vocab, encoder, masked_lm, whole):
    model = built(lambda: BertForPreTraining(BertConfig.size(layers, hidden, vocab_size=vocab)))
    found = model.backbone.count_params()
    assert (found, model.count_params()) == (encoder, whole)
    assert masked_lm in (None, found + model.mlm_head.count_params())


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
    ("size", "encoder", "with_head"),
    [
        ("SMALL", 13_483_008, 13_549_057),
        # BERT's without the pooler; the head is as large as the pooler, plus one output.
        ("BASE", 109_482_240 - 590_592, 109_482_240 + 769),
        ("LARGE", 335_141_888 - 1_049_600, 335_141_888 + 1025),
    ],
)
def test_electras_discriminator(built, size, encoder, with_head):
    model = built(lambda: ElectraDiscriminator(getattr(electra_sizes, size)))
    assert (model.backbone.count_params(), model.count_params()) == (encoder, with_head)


def test_electras_small_generator(built):
    assert built(lambda: ElectraForPreTraining(electra_sizes.SMALL)).count_params() == 13_549_057 + 647_162


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


def test_elmo(built):
    """93.6 million weights without the softmax: 4,096 units with projections of 512, 2,048 filters, two highways."""
    model = built(lambda: BiLMBackbone(dataclasses.replace(elmo().model, vocab_size=9)))
    filters = zip(range(1, 8), (32, 32, 64, 128, 256, 512, 1024), strict=True)
    convolutions = sum(width * 16 * count + count for width, count in filters)
    cnn = 261 * 16 + convolutions + 2 * 2 * (2048**2 + 2048) + 2048 * 512 + 512
    directed = 2 * ((512 + 512 + 1) * 4 * 4096 + 4096 * 512)
    assert sum(math.prod(v.shape) for v in model.trainable_variables) == cnn + 2 * directed == 93_600_848


def test_the_bilstm_on_features(built):
    """Section 5.3: two BiLSTM layers of 768; an LSTM on n features has 4 x 768 x (n + 768 + 1) weights."""
    config = BertConfig.size(4, 16, vocab_size=5)
    model = built(lambda: BertForTokenClassification(config, 9, features="concat_last_four"))
    counts = [2 * 4 * 768 * (n + 768 + 1) for n in (4 * 16, 2 * 768)]
    assert [lstm.count_params() for lstm in model.reader.lstms] == counts
    assert model.classifier.count_params() == 2 * 768 * 9 + 9
