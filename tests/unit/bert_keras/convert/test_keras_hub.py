"""keras-hub's presets: equal outputs at every layer's end, bit-equal round trips, errors and remarks."""

import dataclasses
import json
import shutil
import sys

import numpy as np
import pytest

pytest.importorskip("keras_hub")  # an extra: bert-tfx[keras-hub]

import keras
import keras_hub

from bert_keras.convert import keras_hub as keras_hub_format
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraGenerator
from bert_keras.models.layers import BertEmbeddings
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS as BPE_TOKENS
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, byte_alphabet
from bert_keras.tokenizers.unicode_tables import Normalization
from bert_keras.tokenizers.vocabulary_files import vocabulary_spec
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import assert_equal, read_keras_hub, write_keras_hub

TOLERANCE = 2e-5
WORDS = BertTokenizer([*SPECIAL_TOKENS, "a", "cat", "##s", "cafe"], lower_case=True)
BYTES = ByteBpeTokenizer([*BPE_TOKENS, *byte_alphabet(), "Ġc", "Ġca"], [("Ġ", "c"), ("Ġc", "a")])
BERT = BertConfig(9, 16, 2, 4, 24, max_position_embeddings=8, type_vocab_size=3)
ROBERTA = dataclasses.replace(
    BERT, vocab_size=len(BYTES.vocabulary), type_vocab_size=1, layer_norm_eps=1e-5, hidden_act="gelu_erf"
)
ELECTRA = ElectraConfig(dataclasses.replace(BERT, type_vocab_size=2), 12, 1.0)


def electra_backbone(config, **kwargs):
    return BertBackbone(config.discriminator, embeddings=BertEmbeddings(config.embeddings, name="embeddings"), **kwargs)


# Our class, its configuration, the family, the tokenizer, keras-hub's class.
MODELS = {
    "bert": (BertBackbone, BERT, "bert", WORDS, "BertBackbone"),
    "roberta": (lambda c: BertBackbone(c, has_pooler=False), ROBERTA, "roberta", BYTES, "RobertaBackbone"),
    "roberta masked-LM": (RobertaForMaskedLM, ROBERTA, "roberta", BYTES, "RobertaMaskedLM"),
    "electra": (electra_backbone, ELECTRA, "electra", WORDS, "ElectraBackbone"),
}


@pytest.fixture(scope="module")
def written(random_bert, tmp_path_factory):
    """Each model with random weights, and the folder of its preset."""
    made = {}
    for name, (model_class, config, family, tokenizer, _) in MODELS.items():
        model, directory = random_bert(config, model_class), tmp_path_factory.mktemp("written")
        remarks = write_keras_hub(model, tokenizer, str(directory), family)
        assert (remarks.untrained, remarks.remarks) == ((), ())
        made[name] = model, directory
    return made


def random_inputs(vocab_size, segments):
    rng = np.random.default_rng(0)
    mask = (np.arange(8) < [[8], [5], [1]]).astype("int32")
    ids = rng.integers(0, vocab_size, (3, 8)) * mask
    return {"input_ids": ids, "input_mask": mask, "segment_ids": rng.integers(0, segments, (3, 8)) * mask}


def their_outputs(hub, inputs):
    """Every layer's end and the pooled output or logits of a model of keras-hub."""
    backbone = getattr(hub, "backbone", hub)
    names = {"token_ids": "input_ids", "padding_mask": "input_mask", "segment_ids": "segment_ids"}
    given = {name: inputs[names[name]] for name in backbone.input}
    layers = keras.Model(backbone.input, [layer.output for layer in backbone.transformer_layers])(given)
    if hub is not backbone:
        positions = np.tile(np.arange(8), (3, 1))
        return [*layers, hub({**given, "mask_positions": positions})]
    result = backbone(given)
    return [*layers, result["pooled_output"]] if isinstance(result, dict) else layers


def our_outputs(model, inputs):
    result = model({**inputs, "masked_lm_positions": np.tile(np.arange(8), (3, 1))})
    if "mlm_logits" in result:
        return [*result["encoder_outputs"], result["mlm_logits"]]
    pooled = [result["pooled_output"]] if model.has_pooler else []
    return [*result["encoder_outputs"], *pooled]


def assert_same_function(ours, hub):
    config = getattr(ours, "backbone", ours).config
    inputs = random_inputs(config.vocab_size, config.type_vocab_size)
    mine, theirs = our_outputs(ours, inputs), their_outputs(hub, inputs)
    assert len(mine) == len(theirs) >= config.num_hidden_layers
    for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE, err_msg=str(number))


@pytest.mark.parametrize("name", MODELS)
def test_keras_hub_computes_what_we_do(written, name):
    model, directory = written[name]
    hub = getattr(keras_hub.models, MODELS[name][-1]).from_preset(str(directory))
    assert_same_function(model, hub)


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_bit_equal(written, name):
    model, directory = written[name]
    _, _, family, tokenizer, _ = MODELS[name]
    read = read_keras_hub(str(directory))
    zeroed = ["bert/embeddings/token_type", "bert/embeddings/position"] if family == "roberta" else []
    assert type(read.model) is type(model)
    assert getattr(read.model, "config", None) == model.config
    assert_equal(read.model, model, but=zeroed)
    assert (read.family, read.untrained, read.remarks) == (family, (), ())
    assert read.tokenizer.vocabulary == tokenizer.vocabulary
    assert getattr(read.tokenizer, "merges", None) == getattr(tokenizer, "merges", None)
    assert vocabulary_spec(read.tokenizer) == vocabulary_spec(tokenizer)


@pytest.mark.parametrize("name", ["bert", "roberta masked-LM", "electra"])
def test_a_preset_of_keras_hub_survives_a_round_trip(random_bert, tmp_path, name):
    models = keras_hub.models
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12, "max_sequence_length": 8}
    hub = {
        "bert": lambda: models.BertBackbone(9, **sizes, num_segments=3),
        "electra": lambda: models.ElectraBackbone(9, **sizes, embedding_dim=6),
        "roberta masked-LM": lambda: models.RobertaMaskedLM(models.RobertaBackbone(9, **sizes)),
    }[name]()
    rng = np.random.default_rng(0)
    hub.set_weights([rng.normal(0, 0.3, w.shape) for w in hub.get_weights()])
    hub.save_to_preset(str(tmp_path / "theirs"))
    read = read_keras_hub(str(tmp_path / "theirs"))
    assert (read.tokenizer, read.untrained, read.remarks) == (None, (), ())
    assert_same_function(read.model, hub)
    write_keras_hub(read.model, None, str(tmp_path / "ours"), read.family)
    again = type(hub).from_preset(str(tmp_path / "ours"), **({"preprocessor": None} if "LM" in name else {}))
    for one, other in zip(hub.weights, again.weights, strict=True):
        assert one.path == other.path
        np.testing.assert_array_equal(one, other, err_msg=one.path)


def test_roberta_without_segments_survives_a_round_trip(random_bert, tmp_path):
    model = random_bert(ROBERTA, RobertaForMaskedLM)
    table = variables_by_path(model)["bert/embeddings/token_type_embeddings/embeddings"]
    table.assign(np.zeros(table.shape))
    write_keras_hub(model, None, str(tmp_path))
    assert_equal(read_keras_hub(str(tmp_path)).model, model)


def test_tokenizers_of_keras_hub_give_our_tokens(written):
    text = "a CAFÉ cats"
    for name, (_, _, _, tokenizer, _) in MODELS.items():
        theirs = keras_hub.models.Tokenizer.from_preset(str(written[name][1]))
        assert list(np.asarray(theirs(text))) == list(tokenizer.encode([text])[0]), name


HEADS = [
    (BertForPreTraining, BERT, (), "dropped: masked-LM head, next-sentence head; keras-hub has no equivalent"),
    (ElectraDiscriminator, ELECTRA, ("pooler",), "dropped: discriminator head"),
    (ElectraGenerator, ELECTRA, ("pooler",), "dropped: masked-LM head"),
]


@pytest.mark.parametrize(("model_class", "config", "drawn", "says"), HEADS)
def test_heads_without_equivalent_are_reported(random_bert, tmp_path, model_class, config, drawn, says):
    model = random_bert(config, model_class)
    written = write_keras_hub(model, WORDS, str(tmp_path))
    assert written.untrained == drawn and [r.startswith(says) for r in written.remarks] == [True]
    read = read_keras_hub(str(tmp_path))
    encoder = {path: v for path, v in variables_by_path(model).items() if path.startswith("bert/")}
    for path, value in encoder.items():
        np.testing.assert_array_equal(variables_by_path(read.model)[path], value, err_msg=path)
    if drawn:
        kernel = np.asarray(variables_by_path(read.model)["bert/pooler/kernel"])
        assert 0 < np.abs(kernel).max() <= 2 * BERT.initializer_range  # drawn, not zeros


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_act": "gelu_erf"}, "BertBackbone computes gelu_tanh, the model was trained with gelu_erf"),
        ({"attention_probs_dropout_prob": 0.0}, "attention_probs_dropout_prob 0.0 is dropped"),
    ],
)
def test_differences_in_function_are_reported(random_bert, tmp_path, change, says):
    model = random_bert(dataclasses.replace(BERT, **change), BertBackbone)
    (remark,) = write_keras_hub(model, WORDS, str(tmp_path)).remarks
    assert says in remark


@pytest.mark.parametrize(
    ("config", "family", "tokenizer", "says"),
    [
        (dataclasses.replace(BERT, layer_norm_eps=1e-5), "bert", WORDS, "layer_norm_eps 1e-05, .* always 1e-12"),
        (dataclasses.replace(ROBERTA, layer_norm_eps=1e-12), "roberta", BYTES, "layer_norm_eps 1e-12, .* always 1e-05"),
        (dataclasses.replace(ROBERTA, type_vocab_size=2), "roberta", BYTES, "2 segments, .*RobertaBackbone none"),
        (dataclasses.replace(BERT, vocab_size=8), "bert", WORDS, "has 9 tokens, but the word embeddings .* 8 rows"),
        (dataclasses.replace(BERT, vocab_size=263), "bert", BYTES, "do not fit keras-hub's BertTokenizer"),
        (dataclasses.replace(ROBERTA, vocab_size=9), "roberta", WORDS, "do not fit keras-hub's RobertaTokenizer"),
        (dataclasses.replace(BERT, causal=True), "bert", None, "causal is True"),
    ],
)
def test_models_that_keras_hub_cannot_store_are_refused(tmp_path, config, family, tokenizer, says):
    model = BertBackbone(config)
    model.build()
    with pytest.raises(InputError, match=says):
        write_keras_hub(model, tokenizer, str(tmp_path / "new"), family)
    assert not (tmp_path / "new").exists()


@pytest.fixture
def directory(written, tmp_path):
    """A copy of a BERT that a test may change."""
    return shutil.copytree(written["bert"][1], tmp_path / "copy")


def change(path, **fields):
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "config": {**stored["config"], **fields}}))


def test_a_vocabulary_of_another_size_is_refused_before_anything_is_read(directory):
    (directory / "model.weights.h5").unlink()
    with open(directory / "assets/tokenizer/vocabulary.txt", "a") as file:
        file.write("more\n")
    with pytest.raises(InputError, match=r"vocabulary.txt has 10 tokens, but the word embeddings have 9 rows"):
        read_keras_hub(str(directory))


def test_damaged_and_missing_files_are_named(directory):
    def refused(says, read=read_keras_hub):
        with pytest.raises(InputError, match=says):
            read(str(directory))

    weights, config = directory / "model.weights.h5", directory / "config.json"
    change(config, intermediate_dim=25)
    refused("model.weights.h5: the weights do not fit config.json")
    change(config, intermediate_dim=24)
    weights.write_bytes(weights.read_bytes()[:1000])
    refused("model.weights.h5 is damaged or incomplete .*; copy it again", keras_hub_format.read_keras_hub)
    weights.unlink()
    refused("model.weights.h5 is missing")
    change(config, hidden_dim=15)
    refused("config.json: .*hidden_size is 15, not a multiple of")
    change(config, hidden_dim={"module": "os", "class_name": "system"})
    refused("config.json: config.hidden_dim is an object")
    config.write_text(json.dumps({**json.loads(config.read_text()), "compile_config": {"optimizer": "any"}}))
    refused("config.json: compile_config is an object")
    config.write_text(json.dumps({"registered_name": "keras_hub>BertBackbone", "config": {}}))
    refused("config.json: config has no dropout")
    config.write_text(json.dumps({"registered_name": "keras_hub>GPT2Backbone"}))
    refused("config.json: the class is 'keras_hub>GPT2Backbone'; supported")
    config.unlink()
    refused("config.json is missing")


def test_presets_of_keras_nlp_are_read(written, directory):
    text = (directory / "config.json").read_text().replace("keras_hub>", "keras_nlp>")
    (directory / "config.json").write_text(text)
    assert_equal(read_keras_hub(str(directory)).model, written["bert"][0])


def test_the_preprocessor_makes_rows_that_the_model_takes(written):
    hub = keras_hub.models.RobertaMaskedLM.from_preset(str(written["roberta masked-LM"][1]))
    inputs, _, _ = hub.preprocessor(["a cat"] * 2)
    assert inputs["token_ids"].shape == (2, ROBERTA.max_position_embeddings)


def test_ignored_parts_are_reported(directory):
    (directory / "task.json").write_text('{"class_name": "BertMaskedLM"}')
    change(directory / "tokenizer.json", strip_accents=False)
    read = read_keras_hub(str(directory))
    assert read.tokenizer.normalization == Normalization(True, False)
    (head,) = read.remarks
    assert "the head of BertMaskedLM is dropped" in head
    change(directory / "tokenizer.json", split=False)
    with pytest.raises(InputError, match=r"tokenizer.json: config.split is false; supported: true"):
        read_keras_hub(str(directory))


def test_a_missing_keras_hub_is_reported(directory, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(InputError, match=r"pip install 'bert-tfx\[keras-hub\]'"):
        read_keras_hub(str(directory))
