"""The losses of BERT and ELECTRA over steps of training on real text: those of `transformers` on torch."""

import math

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraForPreTraining
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import electra
from bert_keras.objectives.mlm_nsp import OBJECTIVE, example_sums
from bert_keras.training.config import TrainingConfig
from bert_keras.training.optimizer import DecoupledAdam, create_optimizer
from bert_keras.training.schedules import create_schedule
from tests.support.models.model_folders import write_huggingface
from tests.support.models.tiny_language import real_pairs

ROWS = 16


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
    metrics = OBJECTIVE.metrics({name: float(value) for name, value in summed(ours, batch).items()})
    loss, mlm_loss = (float(value) for value in torch_loss(theirs, batch))
    print(f"loss {loss:.6f}, relative difference {abs(metrics['loss'] - loss) / loss:.1e}")
    assert metrics["loss"] == pytest.approx(loss, rel=1e-6)
    assert metrics["mlm_loss"] == pytest.approx(mlm_loss, rel=1e-6)


def our_losses(model, batches, config, loss_of):
    """As `bert_keras.training.loop`: the loss, the clip, the optimizer and its schedule."""
    optimizer, losses = create_optimizer(config, 12), []
    optimizer.build(model.trainable_variables)
    variables = [v.value for v in model.trainable_variables]
    for step in range(config.num_train_steps):
        with tf.GradientTape() as tape:
            loss = loss_of(model, batches[step % len(batches)])
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


def torch_losses(model, batches, config, loss_of):
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        (others if name.endswith("bias") or "LayerNorm" in name else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer_class = {"adamw": torch.optim.AdamW, "bert_adam": BertAdam}[config.optimizer]
    optimizer = optimizer_class(groups, lr=0.0, betas=(DecoupledAdam.beta_1, config.beta_2), eps=config.epsilon)
    schedule, losses = create_schedule(config), []
    for step in range(config.num_train_steps):
        loss = loss_of(model, batches[step % len(batches)])
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


def bert_loss(model, batch):
    sums = summed(model, batch)
    return sums["mlm_nll"] / (sums["mlm_weight"] + 1e-5) + sums["nsp_nll"] / sums["nsp_weight"]


@pytest.mark.parametrize("optimizer", ["bert_adam", "adamw"])
def test_twenty_steps(models, real, optimizer):
    """The decay is large, so that who is decayed shows within twenty steps."""
    batches, _ = real
    config = TrainingConfig(
        num_train_steps=20, num_warmup_steps=4, learning_rate=2e-3, optimizer=optimizer, weight_decay=1.0
    )
    ours = our_losses(models[0], batches, config, bert_loss)
    theirs = torch_losses(models[1], batches, config, lambda *of: torch_loss(*of)[0])
    difference = np.abs(np.subtract(ours, theirs))
    print(f"loss {ours[0]:.4f} to {ours[-1]:.4f}; the largest difference {difference.max():.1e}")
    assert ours[-1] < ours[0] - 0.5
    assert difference.max() < 1e-5


ELECTRAS = {
    # Layers, width, heads, embeddings, rate and words; None: those of the text.
    "narrow embeddings": (2, 64, 1, 24, 2e-3, None),
    "as published": (12, 256, 4, 128, 2e-4, 30522),
}


@pytest.mark.parametrize("size", ["narrow embeddings", pytest.param("as published", marks=pytest.mark.slow)])
def test_fifty_steps_of_electra(real, tmp_path, size):
    """Generator and discriminator on shared embeddings; torch's discriminator reads what ours drew at each step.

    Without dropout. ELECTRA-small as published, with a generator a quarter as wide.
    """
    batches, words = real
    layers, width, heads, embedding_size, rate, vocab_size = ELECTRAS[size]
    shape = BertConfig(
        *(vocab_size or words, width, layers, heads, 4 * width, 0.0, 0.0),
        max_position_embeddings=512,
        hidden_act="gelu_erf",
    )
    ours = ElectraForPreTraining(ElectraConfig(shape, embedding_size, 1 / 4), seed=1)
    ours.build()
    write_huggingface(ours.discriminator, None, str(tmp_path), generator=ours.generator)
    parts = torch.nn.ModuleDict(
        {
            "discriminator": transformers.ElectraForPreTraining.from_pretrained(tmp_path),
            "generator": transformers.ElectraForMaskedLM.from_pretrained(tmp_path / "generator"),
        }
    )
    discriminator, generator = parts["discriminator"].electra, parts["generator"]
    generator.electra.embeddings = discriminator.embeddings
    generator.generator_lm_head.weight = discriminator.embeddings.word_embeddings.weight
    # The generator may draw [PAD]: torch would not learn its vector, the original does.
    discriminator.embeddings.word_embeddings.padding_idx = None
    drawn = []

    def our_loss(model, batch):
        outputs = model(batch, training=True)
        drawn.append((outputs["sampled_ids"].numpy(), electra.replaced_tokens(outputs["sampled_ids"], batch).numpy()))
        sums = {name: tf.reduce_sum(value) for name, value in electra.example_sums(outputs, batch).items()}
        return electra.OBJECTIVE.loss(sums, electra.totals(batch))

    def their_loss(parts, batch):
        sampled, replaced = read.pop(0)
        rows, slots = np.nonzero(batch["masked_lm_weights"])
        labels = np.full(sampled.shape, -100)
        labels[rows, batch["masked_lm_positions"][rows, slots]] = batch["masked_lm_ids"][rows, slots]
        ids, found, given = (torch.from_numpy(array).long() for array in (batch["input_ids"], sampled, replaced))
        rest = {
            "attention_mask": torch.from_numpy(batch["input_mask"]).long(),
            "token_type_ids": torch.from_numpy(batch["segment_ids"]).long(),
        }
        mlm = parts["generator"](ids, **rest, labels=torch.from_numpy(labels)).loss
        return mlm + 50 * parts["discriminator"](found, **rest, labels=given).loss

    config = TrainingConfig(
        num_train_steps=50, num_warmup_steps=5, learning_rate=rate, optimizer="adamw", weight_decay=0.01
    )
    found = our_losses(ours, batches, config, our_loss)
    read = list(drawn)
    assert 0 < np.mean([replaced.mean() for _, replaced in read]) < 0.15
    wanted = torch_losses(parts, batches, config, their_loss)
    difference = np.abs(np.subtract(found, wanted))
    print(f"loss {found[0]:.4f} to {found[-1]:.4f}; the largest difference {difference.max():.1e}")
    assert found[-1] < found[0] - 1
    assert difference.max() < 1e-4
