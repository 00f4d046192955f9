"""Dropout: gradients scatter as those of `transformers` do, around the same mean.

Draws cannot be equal, but their distribution can. It is over calls of one batch, each with masks of its own as
the training gives them; a dropout that is missing, elsewhere or of another rate changes it.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from transformers import AutoModelForSequenceClassification

from bert_keras.convert import weight_map
from bert_keras.convert.families.table import FAMILIES
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import RandomStates
from bert_keras.models.task_models import BertForSequenceClassification
from tests.support.models.model_folders import write_huggingface
from tests.support.models.variants_of_transformers import as_here

DRAWS = 800
# Seen: ratios of .997 to 1.028, squared differences up to 2.1. Without dropout of attention: ratios from .915.
RATIO_TOLERANCE, MOST_SQUARED = 0.06, 6
ROWS, T = 4, 11
LABELS = np.array([0, 1, 1, 0])


class Moments:
    """Mean and variance of arrays, element by element."""

    def __init__(self, arrays):
        stacked = np.stack(arrays).astype("float64")
        self.mean, self.variance = stacked.mean(0), stacked.var(0, ddof=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A classifier of sentences with dropout .1, with weights large enough to be sharp, and its copy on torch."""
    directory = tmp_path_factory.mktemp("hf")
    config = BertConfig(40, 32, 1, 4, 64, max_position_embeddings=T, hidden_act="gelu_erf")
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.1
    ours = BertForSequenceClassification(config, 2, seed=1)
    ours.build()
    rng = np.random.default_rng(3)
    ours.set_weights([w + rng.normal(scale=0.1, size=w.shape) for w in ours.get_weights()])
    write_huggingface(ours, None, str(directory))
    theirs = AutoModelForSequenceClassification.from_pretrained(directory).train()
    for parameter, weight in zip(theirs.classifier.parameters(), ours.classifier.get_weights(), strict=True):
        parameter.data = torch.from_numpy(weight.T.copy())
    return ours, theirs


@pytest.fixture(scope="module")
def variables(models):
    """The encoder's, by the names of `transformers`; but for the biases of keys, whose gradient is 0."""
    ours, theirs = models
    by_path = variables_by_path(ours)
    stored = {
        weight.huggingface.name: weight.path
        for weight in weight_map.weights(ours.config, FAMILIES["bert"], ours.config.hidden_size)
    }
    parameters = [name for name, _ in theirs.named_parameters() if not name.endswith("key.bias")]
    return {name: by_path[stored[name]] for name in parameters if name in stored}


@pytest.fixture(scope="module")
def features():
    """Rows of 11, 9, 7 and 5 tokens, of two segments."""
    mask = (np.arange(T) < np.array([[11], [9], [7], [5]])).astype("int32")
    ids = np.random.default_rng(2).integers(1, 40, (ROWS, T)).astype("int32")
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": mask * (np.arange(T) > 3).astype("int32")}


def our_gradients(model, variables, features):
    states, watched = RandomStates(model), [variable.value for variable in variables.values()]

    @tf.function
    def gradients(call):
        with tf.GradientTape() as tape, keras.StatelessScope(states.of(call)):
            logits = model(features, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, logits))
        return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, watched)]

    return zip(*([g.numpy() for g in gradients(tf.constant(i, tf.int64))] for i in range(DRAWS)), strict=True)


def their_gradients(model, variables, features):
    called = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    inputs = {called[name]: torch.from_numpy(array).long() for name, array in features.items()}
    parameters, drawn = dict(model.named_parameters()), []
    for _ in range(DRAWS):
        model.zero_grad()
        model(**inputs, labels=torch.from_numpy(LABELS)).loss.backward()
        drawn.append([as_here(name, parameters[name].grad.numpy().copy()) for name in variables])
    return zip(*drawn, strict=True)


def test_gradients_have_the_mean_and_the_deviation_of_transformers(models, variables, features):
    torch.manual_seed(1)
    ours = map(Moments, our_gradients(models[0], variables, features))
    theirs = map(Moments, their_gradients(models[1], variables, features))
    wrong = []
    for name, here, there in zip(variables, ours, theirs, strict=True):
        variance = here.variance.sum(), there.variance.sum()
        ratio = np.sqrt(variance[0] / variance[1])
        # 1 on average where the means are equal.
        squared = ((here.mean - there.mean) ** 2).sum() / (sum(variance) / DRAWS)
        print(f"{name}: ratio of deviations {ratio:.3f}, squared difference of means {squared:.2f}")
        if abs(ratio - 1) > RATIO_TOLERANCE or squared > MOST_SQUARED:
            wrong.append(f"{name}: {ratio:.3f}, {squared:.2f}")
    assert len(variables) > 20
    assert not wrong
