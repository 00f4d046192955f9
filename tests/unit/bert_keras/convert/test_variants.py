"""Hugging Face's folders of BERT and its relatives: round trips, every form of names, errors."""

import dataclasses
import functools
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_keras.convert.families.table import FAMILIES
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraGenerator
from bert_keras.models.layers import BertEmbeddings
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS as BPE_TOKENS
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, byte_alphabet
from bert_keras.tokenizers.vocabulary_files import vocabulary_spec
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models import every_model
from tests.support.models.model_folders import (
    assert_equal,
    change_config,
    change_tensors,
    put,
    read_huggingface,
    without,
    write_huggingface,
)
from tests.support.models.tiny_encoders import DEBERTA_FIELDS, MPNET_FIELDS

WORDS = BertTokenizer([*SPECIAL_TOKENS, "a", "cat", "##s", "é"], lower_case=False)
BYTES = ByteBpeTokenizer([*BPE_TOKENS, *byte_alphabet(), "Ġc", "Ġca"], [("Ġ", "c"), ("Ġc", "a")])
BERT = BertConfig(9, 8, 2, 2, 24, max_position_embeddings=6, type_vocab_size=2, hidden_act="gelu_erf")
ROBERTA = dataclasses.replace(BERT, vocab_size=len(BYTES.vocabulary), type_vocab_size=1, layer_norm_eps=1e-5)
ELECTRA = ElectraConfig(BERT, 6, 1.0)
MODERN = dataclasses.replace(every_model.MODERN, vocab_size=9, hidden_act="gelu_erf")
GLOBAL = dataclasses.replace(MODERN, local_attention=0, global_attn_every_n_layers=3)
MPNET, DEBERTA = (dataclasses.replace(BERT, **fields) for fields in (MPNET_FIELDS, DEBERTA_FIELDS))
APART = dataclasses.replace(DEBERTA, shares_position_keys=False)
ZEROS = np.zeros((9, 9), "float32")


def electra_backbone(config, **kwargs):
    embeddings = BertEmbeddings(config.embeddings, name="embeddings")
    return BertBackbone(config.discriminator, has_pooler=False, embeddings=embeddings, **kwargs)


def modern_backbone(config, **kwargs):
    return BertBackbone(config, has_pooler=False, **kwargs)


# The class of `transformers`: ours, its configuration, the family, the tokenizer.
MODELS = {
    "BertForPreTraining": (BertForPreTraining, BERT, "bert", WORDS),
    "RobertaForMaskedLM": (RobertaForMaskedLM, ROBERTA, "roberta", BYTES),
    "RobertaModel": (BertBackbone, ROBERTA, "roberta", BYTES),
    "ElectraForPreTraining": (ElectraDiscriminator, ELECTRA, "electra", WORDS),
    "ElectraForMaskedLM": (ElectraGenerator, ELECTRA, "electra", WORDS),
    "ElectraModel": (electra_backbone, ELECTRA, "electra", WORDS),
    "ModernBertForMaskedLM": (RobertaForMaskedLM, MODERN, "modernbert", WORDS),
    "ModernBertModel": (modern_backbone, GLOBAL, "modernbert", WORDS),
    "MPNetForMaskedLM": (RobertaForMaskedLM, MPNET, "mpnet", None),
    "MPNetModel": (BertBackbone, MPNET, "mpnet", None),
    "DebertaV2ForMaskedLM": (RobertaForMaskedLM, DEBERTA, "deberta-v2", WORDS),
    "DebertaV2Model": (modern_backbone, APART, "deberta-v2", WORDS),
}


@pytest.fixture(scope="module")
def written(random_bert, tmp_path_factory):
    """`written(name)`: a model of `MODELS` and its folder, made once."""

    @functools.cache
    def make(name):
        model_class, config, family, tokenizer = MODELS[name]
        model, directory = random_bert(config, model_class), tmp_path_factory.mktemp("written")
        assert write_huggingface(model, tokenizer, str(directory), family) == ((), ())
        return model, directory

    return make


@pytest.fixture
def copied(written, tmp_path):
    """`copied(name)`: the same, but a copy of the folder that a test may change."""

    def copy(name):
        model, directory = written(name)
        return model, shutil.copytree(directory, tmp_path, dirs_exist_ok=True)

    return copy


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_bit_equal(written, name):
    model, directory = written(name)
    _, _, family, tokenizer = MODELS[name]
    stored = json.loads((directory / "config.json").read_text())
    assert (stored["model_type"], stored["architectures"]) == (family, [name])
    read = read_huggingface(str(directory))
    assert type(read.model) is type(model) and read.model.config == model.config
    assert_equal(read.model, model)
    assert (read.family, read.untrained, read.remarks) == (family, (), ())
    if tokenizer:
        assert read.tokenizer.vocabulary == tokenizer.vocabulary
        assert vocabulary_spec(read.tokenizer) == vocabulary_spec(tokenizer)
        assert getattr(read.tokenizer, "merges", None) == getattr(tokenizer, "merges", None)


def test_positions_of_files_have_two_more_rows(copied):
    model, directory = copied("RobertaForMaskedLM")
    stored = load_file(directory / "model.safetensors")["roberta.embeddings.position_embeddings.weight"]
    np.testing.assert_array_equal(stored[:2], np.zeros((2, 8)))
    np.testing.assert_array_equal(stored[2:], model.backbone.embeddings.position_embeddings.embeddings)
    fields = json.loads((directory / "config.json").read_text())
    assert (fields["max_position_embeddings"], fields["pad_token_id"]) == (8, 1)
    # Rows that no token has may hold anything.
    change_tensors(directory, lambda t: {k: v + (v == 0) if "position" in k else v for k, v in t.items()})
    assert_equal(read_huggingface(str(directory)).model, model)


@pytest.mark.parametrize("name", [name for name in MODELS if name.endswith(("MaskedLM", "BertForPreTraining"))])
def test_names_are_read_in_every_form(copied, name):
    model, directory = copied(name)
    family = FAMILIES[MODELS[name][2]]
    extra = {f"{family.prefix}embeddings.position_ids": np.arange(6)[None]}
    change_tensors(directory, lambda t: {**t, **{k: t[v] for k, v in family.tied.items()}, **extra})
    assert_equal(read_huggingface(str(directory)).model, model)
    change_tensors(directory, lambda t: {k.removeprefix(family.prefix): v for k, v in t.items()})
    assert_equal(read_huggingface(str(directory)).model, model)
    change_tensors(directory, lambda t: {k: v + 1 if k in family.tied else v for k, v in t.items()})
    with pytest.raises(InputError, match=rf"{next(iter(family.tied))} .* is not equal to .*they must be tied"):
        read_huggingface(str(directory))


def test_a_pooler_beside_the_masked_lm_head_is_dropped_and_reported(copied):
    """As in roberta-base's own file: no loss ever trained it."""
    model, directory = copied("RobertaForMaskedLM")
    pooler = {"weight": np.ones((8, 8), "float32"), "bias": np.ones(8, "float32")}
    change_tensors(directory, lambda t: {**t, **{f"roberta.pooler.dense.{k}": v for k, v in pooler.items()}})
    read = read_huggingface(str(directory))
    assert_equal(read.model, model)
    (remark,) = read.remarks
    assert "the pooler of" in remark and "is dropped" in remark


def test_a_pooler_without_equivalent_is_reported(random_bert, tmp_path):
    model = random_bert(BERT, BertBackbone)
    remarks = write_huggingface(model, None, str(tmp_path), "electra").remarks
    assert remarks == ("the pooler is dropped: ElectraModel has none",)
    assert not read_huggingface(str(tmp_path)).model.has_pooler


def test_what_else_a_released_deberta_holds_is_left_out(copied):
    """The head for replaced tokens and the positions of its decoder (microsoft/deberta-v3-base)."""
    model, directory = copied("DebertaV2Model")
    further = {
        "deberta.embeddings.position_embeddings.weight": ZEROS[:6, :8],
        "mask_predictions.dense.weight": ZEROS[:8, :8],
        "pooler.dense.bias": ZEROS[0, :8],
    }
    change_tensors(directory, lambda tensors: {**tensors, **further})
    read = read_huggingface(str(directory))
    assert_equal(read.model, model)
    (remark,) = read.remarks
    assert "its head is left out (mask_predictions.dense.weight, pooler.dense.bias)" in remark


ROWS = "roberta.embeddings.position_embeddings.weight"


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("RobertaForMaskedLM", without("lm_head.dense.bias"), "lm_head.dense.bias [8] of the masked-LM head is"),
        ("RobertaForMaskedLM", put("roberta.other.bias", ZEROS[0, :8]), "other.bias [8] is not part of a RoBERTa"),
        ("RobertaForMaskedLM", put(ROWS, ZEROS[:6, :8]), "position_embeddings.weight [6, 8] must be [8, 8]"),
        ("ElectraModel", without("electra.embeddings_project"), "embeddings_project.weight [8, 6] of the encoder is"),
        ("ElectraForPreTraining", put("generator_lm_head.bias", ZEROS[0]), "dense.weight [6, 8] of the masked-LM"),
        ("ElectraForMaskedLM", put("generator_predictions.dense.bias", ZEROS[0, :8]), "dense.bias [8] must be [6]"),
    ],
)
def test_wrong_tensors_are_refused_by_name(copied, name, change, says):
    _, directory = copied(name)
    change_tensors(directory, change)
    with pytest.raises(InputError) as error:
        read_huggingface(str(directory))
    assert says in str(error.value) and "model.safetensors" in str(error.value)


def test_a_folder_of_both_halves_of_an_electra_is_refused(written, copied):
    _, directory = copied("ElectraForPreTraining")
    generator = load_file(written("ElectraForMaskedLM")[1] / "model.safetensors")
    change_tensors(directory, lambda tensors: {**generator, **tensors})
    with pytest.raises(InputError, match=r"the heads of a generator and of a discriminator; .* use one folder each"):
        read_huggingface(str(directory))


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("RobertaForMaskedLM", {"pad_token_id": 0}, "pad_token_id is 0; supported: 1"),
        ("RobertaForMaskedLM", {"max_position_embeddings": 2}, "max_position_embeddings is 0; it must be at least 1"),
        ("RobertaForMaskedLM", {"hidden_act": "gelu_new"}, "masked-LM head of RoBERTa always has the exact one"),
        ("ElectraForMaskedLM", {"hidden_act": "gelu_new"}, "masked-LM head of ELECTRA always has the exact one"),
        ("ElectraForPreTraining", {"embedding_size": "6"}, "embedding_size is '6'; it must be a whole number"),
        ("MPNetModel", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets is 64; supported: 32"),
        ("DebertaV2Model", {"conv_kernel_size": 3}, "conv_kernel_size is 3; supported: 0"),
        ("DebertaV2Model", {"position_biased_input": True}, "position_biased_input is True; supported: False"),
        ("DebertaV2Model", {"pos_att_type": ["c2p"]}, r"pos_att_type is \['c2p'\]; supported: 'p2c|c2p'"),
        ("DebertaV2Model", {"attention_head_size": 2}, "attention_head_size is 2; supported: 4"),
        ("DebertaV2Model", {"position_buckets": -1}, "relative_buckets is -1, which must be a multiple of 4"),
    ],
)
def test_other_encoders_are_refused(copied, name, fields, says):
    _, directory = copied(name)
    change_config(directory, **fields)
    with pytest.raises(InputError, match=f"config.json: .*{says}"):
        read_huggingface(str(directory))


@pytest.mark.parametrize(
    ("model_class", "fields", "tokenizer", "says"),
    [
        (RobertaForMaskedLM, {"hidden_act": "gelu_tanh"}, BYTES, "the model: hidden_act is the approximate gelu"),
        (RobertaForMaskedLM, {"vocab_size": 9}, WORDS, r"has padding at id 0; .* must be 1"),
        (BertForPreTraining, {"vocab_size": 9}, WORDS, "is a BERT; it cannot be written as a RoBERTa"),
    ],
)
def test_models_that_transformers_cannot_store_are_refused(tmp_path, model_class, fields, tokenizer, says):
    model = model_class(dataclasses.replace(ROBERTA, **fields))
    model.build()
    with pytest.raises(InputError, match=says):
        write_huggingface(model, tokenizer, str(tmp_path / "new"), "roberta")
    assert not (tmp_path / "new").exists()


@pytest.fixture
def roberta(copied):
    """A folder with its two files of byte-level BPE."""
    return copied("RobertaForMaskedLM")[1]


def fast(directory, merges, pre_tokenizer="ByteLevel", further=()):
    """Puts a `tokenizer.json` in the place of the two files; special tokens are only added, as they may be."""
    for name in ("vocab.json", "merges.txt"):
        (directory / name).unlink(missing_ok=True)
    ids = {token: i for i, token in enumerate(BYTES.vocabulary)}
    added = [*({"content": token, "id": ids[token]} for token in BPE_TOKENS), *further]
    words = {token: i for token, i in ids.items() if token not in BPE_TOKENS}
    fields = {"model": {"type": "BPE", "vocab": words, "merges": merges}, "added_tokens": added}
    text = json.dumps({**fields, "pre_tokenizer": {"type": pre_tokenizer}, "normalizer": None})
    (directory / "tokenizer.json").write_text(text)


@pytest.mark.parametrize("merges", [["Ġ c", "Ġc a"], [["Ġ", "c"], ["Ġc", "a"]]])
def test_tokenizer_json_of_byte_bpe_is_read(roberta, merges):
    fast(roberta, merges)
    read = read_huggingface(str(roberta))
    assert (read.tokenizer.vocabulary, read.tokenizer.merges) == (BYTES.vocabulary, BYTES.merges)


def test_invalid_vocabularies_are_named(roberta):
    def refused(says):
        with pytest.raises(InputError, match=says):
            read_huggingface(str(roberta))

    (roberta / "model.safetensors").unlink()  # refused before anything is read
    merges, vocabulary = roberta / "merges.txt", roberta / "vocab.json"
    merges.write_text("#version: 0.2\nĠ c\nĠc\n", encoding="utf-8")
    refused("merges.txt: merge 2 is 'Ġc'; it must be two tokens")
    ids = json.loads(vocabulary.read_text())
    vocabulary.write_text(json.dumps({**ids, "Ġca": 500}))
    refused(rf"vocab.json: no token has the id {len(ids) - 1}")
    vocabulary.write_text(json.dumps({**ids, "more": len(ids)}))
    refused(rf"vocab.json has {len(ids) + 1} tokens, but the word embeddings")
    merges.unlink()
    vocabulary.write_text(json.dumps(ids))
    refused("merges.txt is missing")
    fast(roberta, [], pre_tokenizer="Metaspace")
    refused("tokenizer.json is a BPE tokenizer; only WordPiece, byte-level BPE and Unigram")
    fast(roberta, [], further=[{"content": "|||", "id": 9, "special": False, "lstrip": True}])
    refused(r"tokenizer.json: added token '\|\|\|' has lstrip=True, which no tokenizer")


def test_add_prefix_space_is_reported(roberta):
    (roberta / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    (remark,) = read_huggingface(str(roberta)).remarks
    assert "adds a space before every text" in remark
