"""FLOPs of a step, computed by hand."""

import dataclasses

import pytest

from bert_keras.models.config import BertConfig
from bert_keras.models.left_to_right import GptBert, LeftToRightLM
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives.distillation import Taught
from bert_keras.training import flops
from bert_keras.training.flops import Ceiling, known_training_flops, matmul_flops_per_second, training_flops
from tests.support.models.small_training import built


def test_flops_of_a_base_model():
    """128 tokens, 20 predictions: a product with a weight is 2 FLOPs a token forwards and 4 backwards."""
    encoder = 12 * 128 * (4 * 768 * 768 + 2 * 768 * 3072)
    attention = 12 * 2 * 12 * 128 * 128 * 64  # 12 layers, scores and context, 12 heads of 64
    head, pooler = 20 * 768 * (768 + 30522), 768 * (768 + 2)
    found = training_flops(BertConfig.size(12, 768), 128, 20)
    assert found == 6.0 * (encoder + attention + head + pooler)
    assert found == pytest.approx(69.9e9, rel=0.001)
    # A gated feed-forward layer has a third matrix.
    gated = training_flops(BertConfig.size(12, 768, gated_feed_forward=True), 128, 20)
    assert gated - found == 6.0 * 12 * 128 * 768 * 3072
    # Eight of twelve layers read three blocks of half a window's 32 tokens.
    local = training_flops(BertConfig.size(12, 768, local_attention=32), 128, 20)
    assert found - local == 6.0 * 8 * 128 * 2 * 768 * (128 - 48)


def test_a_gpt_bert_predicts_all_tokens_of_half_of_its_rows():
    config = BertConfig(100, 8, 1, 1, 16)
    models = BertForPreTraining(config), GptBert(config), LeftToRightLM(dataclasses.replace(config, causal=True))
    found = [known_training_flops(model, 12, 4) for model in models]
    assert found == [training_flops(config, 12, 4), training_flops(config, 12, 8), None]


def test_a_teacher_runs_forward_only():
    """So it has a third of a training's FLOPs, and of a GPT-BERT's half of the rows."""
    config = BertConfig(100, 8, 1, 1, 16)
    large, teacher = dataclasses.replace(config, hidden_size=16), training_flops(config, 12, 4) / 3
    found = [
        known_training_flops(Taught(built(model, large), built(BertForPreTraining, config)), 12, 4)
        for model in (BertForPreTraining, GptBert)
    ]
    alone = training_flops(large, 12, 4), training_flops(large, 12, 8)
    assert found == pytest.approx([alone[0] + teacher, alone[1] + teacher / 2])


def test_the_machine_has_a_matmul_rate():
    assert 1e8 < matmul_flops_per_second("float32") < 1e16


def test_the_ceiling_is_the_maximum_measured(monkeypatch):
    """Measured first on a busy machine, it was below what a training does: 104 % were used, and 111 %."""
    now, measured = [0.0], [1e9, 4e9, 2e9, 3e9, 8e9]
    monkeypatch.setattr(flops.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(flops, "matmul_flops_per_second", lambda dtype: measured.pop(0))
    ceiling = Ceiling(2, "float32")
    assert ceiling.utilization(1e9) == 0.5
    assert ceiling.utilization(4e9) == 0.5  # more than was measured: measured again
    assert ceiling.utilization(9e9) is None  # and now no more was found
    assert ceiling.utilization(2e9) == 0.25
    now[0] += 19
    assert ceiling.utilization(2e9) == 0.25 and len(measured) == 2
    now[0] += 2
    assert ceiling.utilization(2e9) == 0.25 and len(measured) == 1
    assert ceiling.utilization(9e9) == 9 / 16
