"""Hugging Face's ModernBERT: recorded outputs and gradients of `transformers`, every form of its settings, refusals.

Round trips: test_variants.py.
"""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import Tokenizer

from bert_keras.convert.architecture import architecture_of
from bert_keras.convert.families import modernbert
from bert_keras.convert.formats import read_folder
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator
from bert_keras.tokenizers.vocabulary_files import vocabulary_spec
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.golden_folders import write_golden
from tests.support.models.model_folders import (
    assert_equal,
    read_huggingface,
    read_pushed,
    write_huggingface,
    write_keras_hub,
    write_pushed,
    write_tf1,
)
from tests.support.models.pushed_folders import without_graph
from tests.support.models.variants_of_transformers import GOLDEN

TOLERANCE = 1e-5
# Of the golden model, as released files say it, and as `transformers` 5 writes it.
RELEASED = {"global_rope_theta": 160.0, "local_rope_theta": 10.0, "global_attn_every_n_layers": 3}
VERSION_5 = {
    "rope_parameters": {
        "full_attention": {"rope_theta": 160.0, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 10.0, "rope_type": "default"},
    },
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
}


@pytest.fixture
def folder(tmp_path):
    """Writes the golden model with `fields` in its `config.json`."""

    def write(**fields):
        write_golden("modernbert", tmp_path, **fields)
        return str(tmp_path)

    return write


def test_outputs_and_gradients_equal_those_of_transformers(folder):
    read, arrays = read_huggingface(folder(**RELEASED)), dict(np.load(GOLDEN / "modernbert.npz"))
    assert (read.family, read.untrained, read.remarks) == ("modernbert", (), ())
    inputs = {name: arrays[f"inputs/{name}"] for name in ("input_ids", "input_mask", "segment_ids")}
    real, variables = inputs["input_mask"] == 1, variables_by_path(read.model)
    with tf.GradientTape() as tape:  # of the mean of all tokens' losses
        outputs = read.model({**inputs, "masked_lm_positions": None})
        logits, labels = outputs["mlm_logits"][real], inputs["input_ids"][real]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    for found, name in ((logits, "logits"), (outputs["sequence_output"][real], "last_layer")):
        np.testing.assert_allclose(found, arrays[f"outputs/{name}"][real], rtol=0, atol=TOLERANCE)
    gradients = dict(zip(variables, tape.gradient(loss, [v.value for v in variables.values()]), strict=True))
    weights = [w for w in architecture_of(read.model).weights() if w.path in variables]
    arrays_of = {w: np.asarray(tf.convert_to_tensor(gradients[w.path])) for w in weights}
    found = modernbert.joined({w.huggingface.name: w.to_file("huggingface", x) for w, x in arrays_of.items()})
    assert len(found) == len([name for name in arrays if name.startswith("gradients/")])
    for name, value in found.items():
        np.testing.assert_allclose(value, arrays[f"gradients/{name}"], rtol=0, atol=TOLERANCE, err_msg=name)


def test_the_settings_of_version_5_are_the_released_ones(folder):
    assert read_folder(folder(**VERSION_5)).config == read_folder(folder(**RELEASED)).config


def test_missing_fields_are_those_of_modernbert_base_and_listed_layers_are_read(folder):
    config = read_folder(folder()).config
    assert (config.rotary_base, config.local_rotary_base, config.global_attn_every_n_layers) == (160_000, 10_000, 3)
    layers = ["full_attention", "sliding_attention"] * 2
    assert read_folder(folder(layer_types=layers)).config.global_attn_every_n_layers == 2
    assert read_folder(folder(layer_types=layers[:1] * 4)).config.local_attention == 0
    assert (config.layer_norm_eps, config.hidden_act, config.hidden_dropout_prob) == (1e-5, "gelu_erf", 0.0)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"norm_bias": True}, "norm_bias is True; supported: False"),
        ({"classifier_activation": "silu"}, "classifier_activation and hidden_activation differ"),
        ({"layer_types": ["sliding_attention"] * 4}, "every n-th is 'full_attention', from the first"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_scaling is {.*}; supported: None"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type is 'yarn'; supported: 'default'"),
    ],
)
def test_other_encoders_are_refused(folder, fields, says):
    with pytest.raises(InputError, match=f"config.json: .*{says}"):
        read_huggingface(folder(**fields))


def test_a_pushed_folder_holds_the_same_model(folder, tmp_path):
    """Its tokenizer, too, in either folder."""
    read = read_huggingface(folder(**RELEASED))
    tokenizer = BertTokenizer([*SPECIAL_TOKENS, "unused", "b", *map("[unused{}]".format, range(17))], lower_case=True)
    with without_graph():
        write_pushed(read.model, tokenizer, str(tmp_path / "pushed"), read.family, untrained=read.untrained)
    pushed = read_pushed(str(tmp_path / "pushed"))
    parts = ("pooler", "next-sentence head")
    assert (pushed.family, pushed.untrained) == ("modernbert", parts)
    written = write_huggingface(pushed.model, tokenizer, str(tmp_path / "again"), pushed.family)
    assert written.remarks == tuple(f"the {part} is dropped: ModernBertForMaskedLM has none" for part in parts)
    again = read_huggingface(str(tmp_path / "again"))
    assert again.model.config == read.model.config == pushed.model.config
    assert_equal(again.model, read.model)
    assert vocabulary_spec(again.tokenizer) == vocabulary_spec(tokenizer)
    assert again.tokenizer.vocabulary == tokenizer.vocabulary
    theirs = Tokenizer.from_file(str(tmp_path / "again" / "tokenizer.json"))
    ids = [tokenizer.cls_id, *tokenizer.encode(["unused B"])[0], tokenizer.sep_id]
    assert theirs.encode("unused B").ids == ids and len(set(ids)) == 4


def test_an_encoder_of_global_layers_alone_says_so(folder, tmp_path):
    """A window of 0 would be one of a single token there."""
    model = read_huggingface(folder(layer_types=["full_attention"] * 4)).model
    write_huggingface(model, None, str(tmp_path / "written"))
    assert json.loads((tmp_path / "written" / "config.json").read_text())["global_attn_every_n_layers"] == 1


def test_formats_that_cannot_hold_the_encoder_refuse_it(folder, tmp_path):
    model = read_huggingface(folder(**RELEASED)).model
    for write in (write_tf1, write_keras_hub):
        with pytest.raises(InputError, match=r"model.position_embedding is 'rotary'; .* cannot hold such an encoder"):
            write(model, None, str(tmp_path / "new"))
    segments = BertBackbone(BertConfig(9, 8, 1, 1, 8, type_vocab_size=0))
    with pytest.raises(InputError, match=r"model.type_vocab_size is 0; .* cannot hold such an encoder"):
        write_tf1(segments, None, str(tmp_path / "new"), "modernbert")
    electra = ElectraDiscriminator(ElectraConfig(model.config, 16, 1.0))
    with pytest.raises(InputError, match=r"model.position_embedding is 'rotary'; Hugging Face's ELECTRA cannot hold"):
        write_huggingface(electra, None, str(tmp_path / "new"))
    post = type(model)(dataclasses.replace(model.config, norm_place="post"))
    with pytest.raises(InputError, match=r"model.norm_place is 'post', but Hugging Face's ModernBERT always has 'pre'"):
        write_huggingface(post, None, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
