"""The loss of BERT, and twenty steps of training, on real text: those of `transformers` on torch."""

import math

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from bert_keras.convert.huggingface import write_huggingface
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives.mlm_nsp import example_sums, metrics_of
from bert_keras.training.config import TrainingConfig
from bert_keras.training.optimizer import create_optimizer
from bert_keras.training.schedules import create_schedule
from tests.support.models.tiny_language import real_pairs

STEPS, ROWS = 20, 16


@pytest.fixture(scope="module")
def real():
    """Batches of 16 pairs of sentences, and how many tokens there are."""
    features, tokenizer = real_pairs()
    batches = [{k: v[i : i + ROWS] for k, v in features.items()} for i in range(0, 64, ROWS)]
    return batches, len(tokenizer.vocabulary)


@pytest.fixture
def models(real, tmp_path):
    """A BERT without dropout, with the initial weights that it trains from, and its copy on torch."""
    config = BertConfig(real[1], 64, 2, 2, 256, 0.0, 0.0, max_position_embeddings=40)
    ours = BertForPreTraining(config, seed=1)
    ours.build()
    write_huggingface(ours, None, str(tmp_path))
    return ours, transformers.AutoModelForPreTraining.from_pretrained(tmp_path).train()


def summed(model, batch):
    return {name: tf.reduce_sum(value) for name, value in example_sums(model(batch, training=True), batch).items()}


def torch_loss(model, batch):
    """The cross-entropies, written out: mean over the masked tokens, plus mean over the rows."""
    names = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    outputs = model(**{theirs: torch.from_numpy(batch[ours]).long() for ours, theirs in names.items()})
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    logits = outputs.prediction_logits[rows, batch["masked_lm_positions"][rows, slots]]
    cross_entropy = torch.nn.functional.cross_entropy
    mlm = cross_entropy(logits, torch.from_numpy(batch["masked_lm_ids"][rows, slots]).long())
    nsp_labels = torch.from_numpy(batch["next_sentence_labels"][:, 0]).long()
    return mlm + cross_entropy(outputs.seq_relationship_logits, nsp_labels), mlm


def test_the_loss_of_a_batch(models, real):
    """Of a batch whose rows have different numbers of masks: by row or by slot the means would be others."""
    ours, theirs = models
    (batch, *_), _ = real
    predictions = batch["masked_lm_weights"].sum(1)
    assert predictions.min() < predictions.max()
    metrics = metrics_of({name: float(value) for name, value in summed(ours, batch).items()})
    loss, mlm_loss = (float(value) for value in torch_loss(theirs, batch))
    print(f"loss {loss:.6f}, relative difference {abs(metrics['loss'] - loss) / loss:.1e}")
    assert metrics["loss"] == pytest.approx(loss, rel=1e-6)
    assert metrics["mlm_loss"] == pytest.approx(mlm_loss, rel=1e-6)


def our_losses(model, batches, config):
    """As `bert_keras.training.loop`: the loss, the clip, the optimizer and its schedule."""
    optimizer, losses = create_optimizer(config, 2), []
    optimizer.build(model.trainable_variables)
    variables = [v.value for v in model.trainable_variables]
    for step in range(STEPS):
        with tf.GradientTape() as tape:
            sums = summed(model, batches[step % len(batches)])
            loss = sums["mlm_nll"] / (sums["mlm_weight"] + 1e-5) + sums["nsp_nll"] / sums["nsp_weight"]
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]
        gradients, _ = tf.clip_by_global_norm(gradients, config.clip_norm)
        optimizer.apply(gradients, model.trainable_variables)
        losses.append(float(loss))
    return losses


class BertAdam(torch.optim.Optimizer):
    """The original's Adam (google-research/bert, optimization.py), which torch lacks."""

    def __init__(self, groups, **settings):
        super().__init__(groups, settings)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            (b1, b2), rate = group["betas"], group["lr"]
            for p in group["params"]:
                m, v = self.state[p].setdefault("m", torch.zeros_like(p)), self.state[p].setdefault("v", p * 0)
                m.mul_(b1).add_((1 - b1) * p.grad)
                v.mul_(b2).add_((1 - b2) * p.grad**2)
                p -= rate * (m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p)


def torch_losses(model, batches, config):
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        (others if name.endswith("bias") or "LayerNorm" in name else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer_class = {"adamw": torch.optim.AdamW, "bert_adam": BertAdam}[config.optimizer]
    optimizer = optimizer_class(groups, lr=0.0, betas=(config.beta_1, config.beta_2), eps=config.epsilon)
    schedule, losses = create_schedule(config), []
    for step in range(STEPS):
        loss, _ = torch_loss(model, batches[step % len(batches)])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = float(schedule(step))
            if config.optimizer == "adamw":  # torch adds it after the correction of v, this project before
                group["eps"] = config.epsilon / math.sqrt(1 - config.beta_2 ** (step + 1))
        optimizer.step()
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("optimizer", ["bert_adam", "adamw"])
def test_twenty_steps(models, real, optimizer):
    """The decay is large, so that who is decayed shows within twenty steps."""
    batches, _ = real
    config = TrainingConfig(
        num_train_steps=STEPS, num_warmup_steps=4, learning_rate=2e-3, optimizer=optimizer, weight_decay=1.0
    )
    ours, theirs = our_losses(models[0], batches, config), torch_losses(models[1], batches, config)
    difference = np.abs(np.subtract(ours, theirs))
    print(f"loss {ours[0]:.4f} to {ours[-1]:.4f}; the largest difference {difference.max():.1e}")
    assert ours[-1] < ours[0] - 0.5
    assert difference.max() < 1e-5
