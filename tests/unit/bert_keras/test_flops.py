"""The arithmetic of a step, worked out by hand."""

import pytest

from bert_keras.config import BertConfig
from bert_keras.flops import matmul_flops_per_second, training_flops


def test_flops_of_a_base_model():
    """128 tokens, 20 predictions: a product with a weight is 2 FLOPs a token forwards and 4 backwards."""
    encoder = 12 * 128 * (4 * 768 * 768 + 2 * 768 * 3072)
    attention = 12 * 2 * 12 * 128 * 128 * 64  # 12 layers, scores and context, 12 heads of 64
    head, pooler = 20 * 768 * (768 + 30522), 768 * (768 + 2)
    flops = training_flops(BertConfig.size(12, 768), 128, 20)
    assert flops == 6.0 * (encoder + attention + head + pooler)
    assert flops == pytest.approx(69.9e9, rel=0.001)


def test_the_machine_multiplies():
    assert 1e8 < matmul_flops_per_second("float32") < 1e16
