"""Hugging Face's ModernBERT: recorded outputs and gradients of `transformers`, every form of its settings, refusals.

Round trips: test_variants.py.
"""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from bert_keras.convert.architecture import architecture_of
from bert_keras.convert.families import modernbert
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator
from bert_keras.tokenizers.vocabulary_files import vocabulary_spec
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import (
    read_huggingface,
    read_pushed,
    write_huggingface,
    write_keras_hub,
    write_pushed,
    write_tf1,
)
from tests.support.models.variants_of_transformers import GOLDEN

TOLERANCE = 1e-5
# That of golden_transformers_variants/make.py, as released files say it, and as `transformers` 5 writes it.
SHAPE = {
    "model_type": "modernbert",
    "vocab_size": 24,
    "num_hidden_layers": 4,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "local_attention": 4,
}
RELEASED = {"global_rope_theta": 160.0, "local_rope_theta": 10.0, "global_attn_every_n_layers": 3}
VERSION_5 = {
    "rope_parameters": {
        "full_attention": {"rope_theta": 160.0, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 10.0, "rope_type": "default"},
    },
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
}


@pytest.fixture
def arrays():
    return dict(np.load(GOLDEN / "modernbert.npz"))


@pytest.fixture
def folder(arrays, tmp_path):
    """Writes the golden model with `fields` in its `config.json`."""

    def write(**fields):
        save_file({k: v for k, v in arrays.items() if "/" not in k}, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps({**SHAPE, **fields}))
        return str(tmp_path)

    return write


@pytest.mark.parametrize("fields", [RELEASED, VERSION_5])
def test_outputs_and_gradients_equal_those_of_transformers(folder, arrays, fields):
    read = read_huggingface(folder(**fields))
    assert (read.family, read.untrained, read.remarks) == ("modernbert", (), ())
    inputs = {name: arrays[f"inputs/{name}"] for name in ("input_ids", "input_mask", "segment_ids")}
    real, variables = inputs["input_mask"] == 1, variables_by_path(read.model)
    with tf.GradientTape() as tape:  # of the mean of all tokens' losses
        outputs = read.model({**inputs, "masked_lm_positions": None})
        logits, labels = outputs["mlm_logits"][real], inputs["input_ids"][real]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    np.testing.assert_allclose(logits, arrays["outputs/logits"][real], rtol=0, atol=TOLERANCE)
    last = outputs["sequence_output"][real]
    np.testing.assert_allclose(last, arrays["outputs/last_layer"][real], rtol=0, atol=TOLERANCE)
    gradients = dict(zip(variables, tape.gradient(loss, [v.value for v in variables.values()]), strict=True))
    stored = {w.huggingface.name: w for w in architecture_of(read.model).weights() if w.path in variables}
    found = modernbert.joined(
        {
            name: w.to_file("huggingface", np.asarray(tf.convert_to_tensor(gradients[w.path])))
            for name, w in stored.items()
        }
    )
    assert len(found) == len([name for name in arrays if name.startswith("gradients/")])
    for name, value in found.items():
        np.testing.assert_allclose(value, arrays[f"gradients/{name}"], rtol=0, atol=TOLERANCE, err_msg=name)


def test_missing_fields_are_those_of_modernbert_base_and_listed_layers_are_read(folder):
    config = read_huggingface(folder()).model.config
    assert (config.rotary_base, config.local_rotary_base, config.global_attn_every_n_layers) == (160_000, 10_000, 3)
    layers = ["full_attention", "sliding_attention"] * 2
    assert read_huggingface(folder(layer_types=layers)).model.config.global_attn_every_n_layers == 2
    assert read_huggingface(folder(layer_types=layers[:1] * 4)).model.config.local_attention == 0
    assert (config.layer_norm_eps, config.hidden_act, config.hidden_dropout_prob) == (1e-5, "gelu_erf", 0.0)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"norm_bias": True}, "norm_bias is True; supported: False"),
        ({"classifier_activation": "silu"}, "classifier_activation and hidden_activation differ"),
        ({"layer_types": ["sliding_attention"] * 4}, "every n-th is 'full_attention', from the first"),
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
    write_pushed(read.model, tokenizer, str(tmp_path / "pushed"), read.family, untrained=read.untrained)
    pushed = read_pushed(str(tmp_path / "pushed"))
    written = write_huggingface(pushed.model, tokenizer, str(tmp_path / "again"), pushed.family)
    assert written.remarks == tuple(
        f"the {part} is dropped: ModernBertForMaskedLM has none" for part in ("pooler", "next-sentence head")
    )
    again = read_huggingface(str(tmp_path / "again"))
    assert (pushed.family, pushed.untrained) == ("modernbert", ("pooler", "next-sentence head"))
    assert again.model.config == read.model.config == pushed.model.config
    assert vocabulary_spec(again.tokenizer) == vocabulary_spec(tokenizer)
    assert again.tokenizer.vocabulary == tokenizer.vocabulary
    theirs = Tokenizer.from_file(str(tmp_path / "again" / "tokenizer.json"))
    ids = [tokenizer.cls_id, *tokenizer.encode(["unused B"])[0], tokenizer.sep_id]
    assert theirs.encode("unused B").ids == ids and len(set(ids)) == 4
    for one, other in zip(again.model.weights, read.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


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
