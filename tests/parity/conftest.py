"""The fixture `pair`: models here and in `transformers` with the same weights."""

import dataclasses
import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers
from keras import ops

from bert_keras.convert.architecture import architecture_of
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraForPreTraining, ElectraGenerator
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from bert_keras.objectives import electra, mlm, mlm_nsp
from tests.support.models import tiny_encoders
from tests.support.models.variants_of_transformers import as_here
from tests.support.models.whole_loss import whole

MAKE = Path(__file__).parents[1] / "support/models/golden_transformers_variants/make.py"
VARIANTS = runpy.run_path(str(MAKE))
V, T, LAYERS = 40, 11, 3
SIZES = {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 72}


@dataclasses.dataclass
class Pair:
    """A model here and that of `transformers` with the same weights, and what to compare.

    Attributes:
        variables: the variable here of each parameter there.
        our_outputs, their_outputs: from features to tensors; what is called the same is to be equal.
        our_loss, their_loss: from features to the loss that either trains with.
    """

    ours: keras.Model
    theirs: torch.nn.Module
    variables: dict[str, keras.Variable]
    features: dict[str, np.ndarray]
    our_outputs: Callable[[dict], dict[str, Any]]
    their_outputs: Callable[[dict], dict[str, torch.Tensor]]
    our_loss: Callable[[dict], Any]
    their_loss: Callable[[dict], torch.Tensor]


def share_weights(variables, module):
    """Gives the variables the parameters of a module, of which none may be left."""
    parameters = dict(module.named_parameters())
    assert variables.keys() == parameters.keys()
    for name, variable in variables.items():
        variable.assign(as_here(name, parameters[name].detach().numpy()))


def masked_features(segments):
    """Rows of 11, 9, 7 and 5 tokens, up to three masked each; 1 and 0 are no token."""
    features = VARIANTS["random_inputs"](segments, length=T)
    rng = np.random.default_rng(2)
    positions = np.array([np.sort(rng.choice(n, 3, replace=False)) for n in features["input_mask"].sum(1)])
    weights = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 0, 0]], "float32")
    return {
        **features,
        "masked_lm_positions": np.where(weights, positions, 0),
        "masked_lm_ids": np.where(weights, rng.integers(2, V, positions.shape), 0),
        "masked_lm_weights": weights,
        "next_sentence_labels": np.array([[0], [1], [1], [0]]),
    }


def tensors(features, pad_token_id=0):
    """The arguments of a model of torch."""
    ids = np.where(features["input_mask"], features["input_ids"], pad_token_id)
    inputs = {"input_ids": ids, "attention_mask": features["input_mask"], "token_type_ids": features["segment_ids"]}
    return {name: torch.from_numpy(np.asarray(value)) for name, value in inputs.items()}


def masked_labels(features):
    """[B, T]: the original at what is masked, -100 elsewhere."""
    labels = np.full(features["input_ids"].shape, -100)
    rows, slots = np.nonzero(features["masked_lm_weights"])
    labels[rows, features["masked_lm_positions"][rows, slots]] = features["masked_lm_ids"][rows, slots]
    return torch.from_numpy(labels)


def everywhere(features):
    """The features, with a prediction at each position."""
    rows, length = features["input_ids"].shape
    return {**features, "masked_lm_positions": np.tile(np.arange(length), (rows, 1))}


def summed(sums):
    return {name: tf.reduce_sum(value) for name, value in sums.items()}


def named_variables(model, family):
    """The variable here of each tensor in a folder of Hugging Face's."""
    by_path, table = variables_by_path(model), architecture_of(model, family).weights()
    return {weight.huggingface.name: by_path[weight.path] for weight in table if weight.path in by_path}


def bert(hidden_act):
    config = transformers.BertConfig(**SIZES, hidden_act=hidden_act, max_position_embeddings=T)
    theirs = VARIANTS["randomised"](transformers.BertForPreTraining(config))
    act = {"gelu": "gelu_erf", "gelu_new": "gelu_tanh"}[hidden_act]
    ours = BertForPreTraining(BertConfig(**SIZES, max_position_embeddings=T, hidden_act=act))
    ours.build()

    def their_outputs(features):
        result = theirs(**tensors(features))
        return {"mlm_logits": result.prediction_logits, "nsp_logits": result.seq_relationship_logits}

    def our_loss(features):
        sums = summed(mlm_nsp.example_sums(ours(features), features))
        return sums["mlm_nll"] / sums["mlm_weight"] + sums["nsp_nll"] / sums["nsp_weight"]

    def their_loss(features):
        nsp = torch.from_numpy(features["next_sentence_labels"])
        return theirs(**tensors(features), labels=masked_labels(features), next_sentence_label=nsp).loss

    return Pair(
        ours,
        theirs,
        named_variables(ours, "bert"),
        masked_features(segments=2),
        lambda x: ours(everywhere(x)),
        their_outputs,
        our_loss,
        their_loss,
    )


def masked_lm(family, ours, theirs, segments=1):
    """An encoder with a masked-LM head alone."""
    ours.build()
    pad_token_id = theirs.config.pad_token_id

    def our_loss(features):
        sums = summed(mlm.example_sums(ours(features), features))
        return sums["mlm_nll"] / sums["mlm_weight"]

    return Pair(
        ours,
        VARIANTS["randomised"](theirs),
        named_variables(ours, family),
        masked_features(segments),
        lambda x: ours(everywhere(x)),
        lambda x: {"mlm_logits": theirs(**tensors(x, pad_token_id)).logits},
        our_loss,
        lambda x: theirs(**tensors(x, pad_token_id), labels=masked_labels(x)).loss,
    )


def here(**changes):
    return RobertaForMaskedLM(
        BertConfig(**SIZES, **{"max_position_embeddings": T, "hidden_act": "gelu_erf", **changes})
    )


def roberta():
    config = transformers.RobertaConfig(**SIZES, max_position_embeddings=T + 2, type_vocab_size=1, layer_norm_eps=1e-5)
    ours = here(type_vocab_size=1, layer_norm_eps=1e-5)
    return masked_lm("roberta", ours, transformers.RobertaForMaskedLM(config))


def mpnet():
    config = transformers.MPNetConfig(**SIZES, max_position_embeddings=T + 2, layer_norm_eps=1e-5)
    ours = here(**tiny_encoders.MPNET_FIELDS, layer_norm_eps=1e-5)
    return masked_lm("mpnet", ours, transformers.MPNetForMaskedLM(config))


def deberta(shares):
    fields = {"relative_attention": True, "position_biased_input": False, "norm_rel_ebd": "layer_norm"}
    fields |= {"pos_att_type": "c2p|p2c", "position_buckets": 4, "max_relative_positions": 10}
    config = transformers.DebertaV2Config(**SIZES, **fields, max_position_embeddings=T, share_att_key=shares)
    ours = here(**tiny_encoders.DEBERTA_FIELDS, layer_norm_eps=1e-7, shares_position_keys=shares)
    return masked_lm("deberta-v2", ours, transformers.DebertaV2ForMaskedLM(config))


ELECTRA = ElectraConfig(BertConfig(**SIZES, max_position_embeddings=T, hidden_act="gelu_erf"), 24, 1 / 2)


def their_electra(model_class, width, heads):
    shape = {**SIZES, "hidden_size": width, "num_attention_heads": heads, "intermediate_size": 4 * width}
    if width == SIZES["hidden_size"]:
        shape["intermediate_size"] = SIZES["intermediate_size"]
    config = transformers.ElectraConfig(**shape, embedding_size=24, max_position_embeddings=T, layer_norm_eps=1e-12)
    return VARIANTS["randomised"](model_class(config))


def generator():
    return masked_lm("electra", ElectraGenerator(ELECTRA), their_electra(transformers.ElectraForMaskedLM, 16, 1), 2)


def discriminator_nll(logits, features):
    """Mean over all tokens, as `ElectraForPreTraining` of `transformers` has it."""
    replaced = electra.replaced_tokens(features["sampled_ids"], features).numpy()
    real = features["input_mask"] == 1
    labels = torch.from_numpy(replaced[real]).to(logits.dtype)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits[torch.from_numpy(real)], labels)


def with_samples(features):
    """Fixed samples of the generator: the original at every second masked token, else another token."""
    ids = features["masked_lm_ids"]
    guesses = np.where(np.arange(ids.size).reshape(ids.shape) % 2, ids, (ids + 1) % V)
    return {**features, "guesses": guesses, "sampled_ids": electra.put(features, guesses).numpy()}


def discriminator():
    theirs = their_electra(transformers.ElectraForPreTraining, 32, 4)
    ours = ElectraDiscriminator(ELECTRA)
    ours.build()
    features = with_samples(masked_features(segments=2))
    features["text"], features["input_ids"] = features["input_ids"], features["sampled_ids"]

    def our_loss(features):
        outputs = {**ours(features), "sampled_ids": features["sampled_ids"], "mlm_logits": tf.zeros((4, 3, V))}
        sums = summed(electra.example_sums(outputs, {**features, "input_ids": features["text"]}))
        return sums["disc_nll"] / sums["disc_weight"]

    def their_loss(features):
        text = {**features, "input_ids": features["text"]}
        labels = torch.from_numpy(electra.replaced_tokens(features["sampled_ids"], text).numpy().astype("int64"))
        assert 0 < labels.sum() < features["masked_lm_weights"].sum()
        return theirs(**tensors(features), labels=labels).loss

    return Pair(
        ours,
        theirs,
        named_variables(ours, "electra"),
        features,
        ours,
        lambda x: {"discriminator_logits": theirs(**tensors(x)).logits},
        our_loss,
        their_loss,
    )


def electra_whole():
    """One set of embeddings in both; what the discriminator reads is given, not drawn."""
    parts = torch.nn.ModuleDict(
        {
            "discriminator": their_electra(transformers.ElectraForPreTraining, 32, 4),
            "generator": their_electra(transformers.ElectraForMaskedLM, 16, 1),
        }
    )
    parts["generator"].electra.embeddings = parts["discriminator"].electra.embeddings
    parts["generator"].generator_lm_head.weight = parts["discriminator"].electra.embeddings.word_embeddings.weight
    ours = ElectraForPreTraining(ELECTRA)
    ours.build()
    of_both = {name: named_variables(getattr(ours, name), "electra") for name in ("discriminator", "generator")}
    variables = {f"discriminator.{name}": v for name, v in of_both["discriminator"].items()}
    shared = {id(variable) for variable in variables.values()}
    own = {f"generator.{name}": v for name, v in of_both["generator"].items() if id(v) not in shared}

    def our_outputs(features):
        with mock.patch("bert_keras.models.electra.sample", lambda logits, seed: features["guesses"]):
            outputs = ours(features)
        np.testing.assert_array_equal(outputs["sampled_ids"], features["sampled_ids"])
        return outputs

    def their_outputs(features):
        logits = parts["generator"](**tensors(features)).logits
        at = torch.from_numpy(features["masked_lm_positions"])[..., None].expand(-1, -1, V)
        read = {**features, "input_ids": features["sampled_ids"]}
        found = parts["discriminator"](**tensors(read)).logits
        return {"mlm_logits": torch.gather(logits, 1, at), "discriminator_logits": found}

    def their_loss(features):
        mlm_loss = parts["generator"](**tensors(features), labels=masked_labels(features)).loss
        found = their_outputs(features)["discriminator_logits"]
        return mlm_loss + 50 * discriminator_nll(found, features)

    return Pair(
        ours,
        parts,
        variables | own,
        with_samples(masked_features(segments=2)),
        our_outputs,
        their_outputs,
        lambda x: whole(electra.OBJECTIVE.loss, summed(electra.example_sums(our_outputs(x), x))),
        their_loss,
    )


PAIRS = {
    "bert, tanh": lambda: bert("gelu_new"),
    "bert, erf": lambda: bert("gelu"),
    "roberta": roberta,
    "mpnet": mpnet,
    "deberta": lambda: deberta(True),
    "deberta, own matrices": lambda: deberta(False),
    "electra's generator": generator,
    "electra's discriminator": discriminator,
    "electra": electra_whole,
}


# TensorFlow's own have constants that are rounded to float32, in float64 too: 1e-8 off.
GELUS = {
    "gelu": lambda x: 0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * (1 + ops.erf(x / math.sqrt(2))),
}


@pytest.fixture(params=PAIRS)
def pair(request, dtype, monkeypatch):
    torch.manual_seed(0)
    if dtype == "float64":
        for name, function in GELUS.items():
            monkeypatch.setattr(f"bert_keras.models.layers.{name}", function)
        # Theirs is rounded to float32.
        scale = f"{transformers.models.deberta_v2.__name__}.modeling_deberta_v2.scaled_size_sqrt"
        monkeypatch.setattr(scale, lambda x, factor: torch.tensor(float(x.size(-1) * factor)).double().sqrt())
    keras.config.set_dtype_policy(dtype)
    try:
        pair = PAIRS[request.param]()
    finally:
        keras.config.set_dtype_policy("float32")
    pair.theirs.to(getattr(torch, dtype))
    share_weights(pair.variables, pair.theirs)
    assert len(pair.variables) == len(pair.ours.trainable_variables)
    return pair
