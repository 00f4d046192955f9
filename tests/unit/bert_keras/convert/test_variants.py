"""Hugging Face's folders of RoBERTa and others: recorded outputs of `transformers`, round trips, errors."""

import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_keras.convert.architecture import Architecture, new_model
from bert_keras.convert.families.table import FAMILIES
from bert_keras.convert.weight_copy import variables_by_path
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraForPreTraining, ElectraGenerator
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
from tests.support.models.variants_of_transformers import GOLDEN, TOLERANCE

WORDS = BertTokenizer([*SPECIAL_TOKENS, "a", "cat", "##s", "é"], lower_case=False)
BYTES = ByteBpeTokenizer([*BPE_TOKENS, *byte_alphabet(), "Ġc", "Ġca"], [("Ġ", "c"), ("Ġc", "a")])
BERT = BertConfig(9, 8, 2, 2, 24, max_position_embeddings=6, type_vocab_size=2, hidden_act="gelu_erf")
ROBERTA = dataclasses.replace(BERT, vocab_size=len(BYTES.vocabulary), type_vocab_size=1, layer_norm_eps=1e-5)
ELECTRA = ElectraConfig(BERT, 6, 1.0)
ZEROS = np.zeros((9, 9), "float32")
MODERN = dataclasses.replace(every_model.MODERN, vocab_size=9, hidden_act="gelu_erf")


def electra_backbone(config, **kwargs):
    embeddings = BertEmbeddings(config.embeddings, name="embeddings")
    return BertBackbone(config.discriminator, has_pooler=False, embeddings=embeddings, **kwargs)


def modern_backbone(config, **kwargs):
    return BertBackbone(config, has_pooler=False, **kwargs)


# Our class, its configuration, the family, the tokenizer, the class of `transformers`.
MODELS = {
    "RobertaForMaskedLM": (RobertaForMaskedLM, ROBERTA, "roberta", BYTES),
    "RobertaModel": (BertBackbone, ROBERTA, "roberta", BYTES),
    "ElectraForPreTraining": (ElectraDiscriminator, ELECTRA, "electra", WORDS),
    "ElectraForMaskedLM": (ElectraGenerator, ELECTRA, "electra", WORDS),
    "ElectraModel": (electra_backbone, ELECTRA, "electra", WORDS),
    "ModernBertForMaskedLM": (RobertaForMaskedLM, MODERN, "modernbert", WORDS),
    "ModernBertModel": (
        modern_backbone,
        dataclasses.replace(MODERN, local_attention=0, global_attn_every_n_layers=3),
        "modernbert",
        WORDS,
    ),
}
SIZES = {"vocab_size": 24, "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 64}
# The configurations of golden_transformers_variants/make.py, which come with the tensors of none.
GOLDEN_CONFIGS = {
    "roberta": {
        "model_type": "roberta",
        "max_position_embeddings": 14,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    },
    "electra_discriminator": {"model_type": "electra", "max_position_embeddings": 12, "embedding_size": 12},
    "electra_generator": {
        "model_type": "electra",
        "max_position_embeddings": 12,
        "embedding_size": 12,
        "hidden_size": 8,
        "num_attention_heads": 1,
        "intermediate_size": 32,
    },
}


@pytest.mark.parametrize("name", GOLDEN_CONFIGS)
def test_outputs_equal_those_of_transformers(tmp_path, name):
    arrays = dict(np.load(GOLDEN / f"{name}.npz"))
    save_file({k: v for k, v in arrays.items() if "/" not in k}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, **GOLDEN_CONFIGS[name]}))
    read = read_huggingface(str(tmp_path))
    assert (read.untrained, read.remarks, read.tokenizer) == ((), (), None)
    inputs = {name: arrays[f"inputs/{name}"] for name in ("input_ids", "input_mask", "segment_ids")}
    outputs = read.model({**inputs, "masked_lm_positions": None})
    logits = outputs["mlm_logits" if "mlm_logits" in outputs else "discriminator_logits"]
    real = inputs["input_mask"] == 1  # `transformers` computes other things of padding
    for ours, theirs in ((outputs["sequence_output"], "last_layer"), (logits, "logits")):
        np.testing.assert_allclose(
            np.asarray(ours)[real], arrays[f"outputs/{theirs}"][real], rtol=0, atol=TOLERANCE, err_msg=theirs
        )


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_bit_equal(random_bert, tmp_path, name):
    model_class, config, family, tokenizer = MODELS[name]
    model = random_bert(config, model_class)
    written = write_huggingface(model, tokenizer, str(tmp_path), family)
    assert (written.untrained, written.remarks) == ((), ())
    stored = json.loads((tmp_path / "config.json").read_text())
    assert (stored["model_type"], stored["architectures"]) == (family, [name])
    read = read_huggingface(str(tmp_path))
    assert type(read.model) is type(model) and read.model.config == model.config
    assert_equal(read.model, model)
    assert (read.family, read.tokenizer.vocabulary, read.untrained, read.remarks) == (
        family,
        tokenizer.vocabulary,
        (),
        (),
    )
    assert vocabulary_spec(read.tokenizer) == vocabulary_spec(tokenizer)
    assert getattr(read.tokenizer, "merges", None) == getattr(tokenizer, "merges", None)


@pytest.mark.parametrize("architecture", [Architecture("roberta", ROBERTA, 8), Architecture("electra", BERT, 6)])
def test_the_table_has_every_weight_with_its_shape(architecture):
    table, family = architecture.weights(), architecture.family
    # Which heads make another model; between them, these have every part of the family.
    models = [new_model(architecture, [part]) for part in ("masked-LM head", "discriminator head", "pooler")]
    found = {path: tuple(v.shape) for model in models for path, v in variables_by_path(model).items()}
    assert found == {weight.path: weight.shape for weight in table} and len(found) == len(table)
    names = {format_: [weight.stored(format_) for weight in table] for format_ in ("tf1", "huggingface", "keras_hub")}
    # TensorFlow 1 had no RoBERTa, and google-research/electra's models have no pooler.
    unknown = {weight.path for weight, stored in zip(table, names["tf1"], strict=True) if not stored}
    assert unknown == (set(found) if family == "roberta" else {"bert/pooler/kernel", "bert/pooler/bias"})
    for format_ in ("tf1", "huggingface", "keras_hub"):
        known = [stored.name for stored in names[format_] if stored]
        assert len(set(known)) == len(known) and bool(known) == (format_ != "tf1" or family != "roberta")
    theirs = {stored.name for stored in names["huggingface"] if stored}
    assert all(name.startswith((f"{family}.", *FAMILIES[family].head_prefixes)) for name in theirs)
    assert set(FAMILIES[family].tied.values()) <= theirs and not set(FAMILIES[family].tied) & theirs


def test_positions_of_files_have_two_more_rows(random_bert, tmp_path):
    model = random_bert(ROBERTA, RobertaForMaskedLM)
    write_huggingface(model, None, str(tmp_path))
    stored = load_file(tmp_path / "model.safetensors")["roberta.embeddings.position_embeddings.weight"]
    np.testing.assert_array_equal(stored[:2], np.zeros((2, 8)))
    np.testing.assert_array_equal(stored[2:], model.backbone.embeddings.position_embeddings.embeddings)
    fields = json.loads((tmp_path / "config.json").read_text())
    assert (fields["max_position_embeddings"], fields["pad_token_id"]) == (8, 1)
    # Rows that no token has may hold anything.
    change_tensors(tmp_path, lambda t: {k: v + (v == 0) if "position" in k else v for k, v in t.items()})
    assert_equal(read_huggingface(str(tmp_path)).model, model)


def test_generator_and_discriminator_of_one_electra_are_two_folders(random_bert, tmp_path):
    """64-wide heads, as published: what is read of the generator alone has the same shape."""
    shape = BertConfig(9, 128, 1, 2, 512, max_position_embeddings=6, hidden_act="gelu_erf")
    model = random_bert(ElectraConfig(shape, 64, 1 / 2), ElectraForPreTraining)
    for part in ("generator", "discriminator"):
        write_huggingface(getattr(model, part), WORDS, str(tmp_path / part))
        read = read_huggingface(str(tmp_path / part)).model
        assert_equal(read, getattr(model, part))
        assert getattr(read.config, part) == getattr(model.config, part)
    tables = [load_file(tmp_path / p / "model.safetensors") for p in ("generator", "discriminator")]
    shared = "electra.embeddings.word_embeddings.weight"
    np.testing.assert_array_equal(tables[0][shared], tables[1][shared])


@pytest.mark.parametrize("name", ["RobertaForMaskedLM", "ElectraForMaskedLM", "ModernBertForMaskedLM"])
def test_names_are_read_in_every_form(random_bert, tmp_path, name):
    model_class, config, family, tokenizer = MODELS[name]
    model = random_bert(config, model_class)
    write_huggingface(model, tokenizer, str(tmp_path))
    prefix = FAMILIES[family].prefix
    extra = {f"{prefix}embeddings.position_ids": np.arange(6)[None]}
    change_tensors(tmp_path, lambda t: {**t, **{k: t[v] for k, v in FAMILIES[family].tied.items()}, **extra})
    assert_equal(read_huggingface(str(tmp_path)).model, model)
    change_tensors(tmp_path, lambda t: {k.removeprefix(prefix): v for k, v in t.items()})
    assert_equal(read_huggingface(str(tmp_path)).model, model)
    change_tensors(tmp_path, lambda t: {k: v + 1 if k in FAMILIES[family].tied else v for k, v in t.items()})
    with pytest.raises(
        InputError, match=rf"{next(iter(FAMILIES[family].tied))} .* is not equal to .*they must be tied"
    ):
        read_huggingface(str(tmp_path))


def test_a_pooler_beside_the_masked_lm_head_is_dropped_and_reported(random_bert, tmp_path):
    """As in roberta-base's own file: no loss ever trained it."""
    model = random_bert(ROBERTA, RobertaForMaskedLM)
    write_huggingface(model, BYTES, str(tmp_path))
    pooler = {"weight": np.ones((8, 8), "float32"), "bias": np.ones(8, "float32")}
    change_tensors(tmp_path, lambda t: {**t, **{f"roberta.pooler.dense.{k}": v for k, v in pooler.items()}})
    read = read_huggingface(str(tmp_path))
    assert_equal(read.model, model)
    assert len(read.remarks) == 1 and "the pooler of" in read.remarks[0] and "is dropped" in read.remarks[0]


def test_a_pooler_without_equivalent_is_reported(random_bert, tmp_path):
    model = random_bert(BERT, BertBackbone)
    assert write_huggingface(model, None, str(tmp_path), "electra").remarks == (
        "the pooler is dropped: ElectraModel has none",
    )
    assert not read_huggingface(str(tmp_path)).model.has_pooler


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("RobertaForMaskedLM", without("lm_head.dense.bias"), "lm_head.dense.bias [8] of the masked-LM head is"),
        (
            "RobertaForMaskedLM",
            put("roberta.other.bias", ZEROS[0, :8]),
            "roberta.other.bias [8] is not part of a RoBERTa",
        ),
        (
            "RobertaForMaskedLM",
            put("roberta.embeddings.position_embeddings.weight", ZEROS[:6, :8]),
            "position_embeddings.weight [6, 8] must be [8, 8]",
        ),
        ("ElectraModel", without("electra.embeddings_project"), "embeddings_project.weight [8, 6] of the encoder is"),
        (
            "ElectraForPreTraining",
            put("generator_lm_head.bias", ZEROS[0, :9]),
            "generator_predictions.dense.weight [6, 8] of the",
        ),
        (
            "ElectraForMaskedLM",
            put("generator_predictions.dense.bias", ZEROS[0, :8]),
            "dense.bias [8] must be [6]",
        ),
    ],
)
def test_wrong_tensors_are_refused_by_name(random_bert, tmp_path, name, change, says):
    model_class, config, family, _ = MODELS[name]
    write_huggingface(random_bert(config, model_class), None, str(tmp_path), family)
    change_tensors(tmp_path, change)
    with pytest.raises(InputError) as error:
        read_huggingface(str(tmp_path))
    assert says in str(error.value) and "model.safetensors" in str(error.value)


def test_a_folder_of_both_halves_of_an_electra_is_refused(random_bert, tmp_path):
    for name, half in (("a", ElectraGenerator), ("b", ElectraDiscriminator)):
        write_huggingface(random_bert(ELECTRA, half), None, str(tmp_path / name))
    generator = load_file(tmp_path / "a/model.safetensors")
    change_tensors(tmp_path / "b", lambda tensors: {**generator, **tensors})
    with pytest.raises(InputError, match=r"the heads of a generator and of a discriminator; .* use one folder each"):
        read_huggingface(str(tmp_path / "b"))


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("RobertaForMaskedLM", {"pad_token_id": 0}, "pad_token_id is 0; supported: 1"),
        ("RobertaForMaskedLM", {"max_position_embeddings": 2}, "max_position_embeddings is 0; it must be at least 1"),
        ("RobertaForMaskedLM", {"hidden_act": "gelu_new"}, "masked-LM head of RoBERTa always has the exact one"),
        ("ElectraForMaskedLM", {"hidden_act": "gelu_new"}, "masked-LM head of ELECTRA always has the exact one"),
        ("ElectraForPreTraining", {"embedding_size": "6"}, "embedding_size is '6'; it must be a whole number"),
    ],
)
def test_other_model_types_are_refused(random_bert, tmp_path, name, fields, says):
    model_class, config, _, _ = MODELS[name]
    write_huggingface(random_bert(config, model_class), None, str(tmp_path))
    change_config(tmp_path, **fields)
    with pytest.raises(InputError, match=says):
        read_huggingface(str(tmp_path))


def test_models_that_transformers_cannot_store_are_refused(tmp_path):
    model = RobertaForMaskedLM(dataclasses.replace(ROBERTA, hidden_act="gelu_tanh"))
    model.build()
    with pytest.raises(InputError, match="the model: hidden_act is the approximate gelu"):
        write_huggingface(model, BYTES, str(tmp_path / "new"))
    model = RobertaForMaskedLM(dataclasses.replace(ROBERTA, vocab_size=9))
    model.build()
    with pytest.raises(InputError, match=r"has padding at id 0; .* must be 1"):
        write_huggingface(model, WORDS, str(tmp_path / "new"))
    model = BertForPreTraining(BERT)
    model.build()
    with pytest.raises(InputError, match="is a BERT; it cannot be written as a RoBERTa"):
        write_huggingface(model, WORDS, str(tmp_path / "new"), "roberta")
    assert not (tmp_path / "new").exists()


@pytest.fixture
def roberta(tmp_path):
    """A folder with its two files of byte-level BPE."""
    model = RobertaForMaskedLM(ROBERTA)
    model.build()
    write_huggingface(model, BYTES, str(tmp_path))
    return tmp_path


def fast(directory, merges, model="BPE", pre_tokenizer="ByteLevel", normalizer=None, further=()):
    """Puts a `tokenizer.json` in the place of the two files; special tokens are only added, as they may be."""
    for name in ("vocab.json", "merges.txt"):
        (directory / name).unlink(missing_ok=True)
    ids = {token: i for i, token in enumerate(BYTES.vocabulary)}
    added = [*({"content": token, "id": ids[token]} for token in BPE_TOKENS), *further]
    words = {token: i for token, i in ids.items() if token not in BPE_TOKENS}
    fields = {"model": {"type": model, "vocab": words, "merges": merges}, "added_tokens": added}
    text = json.dumps({**fields, "pre_tokenizer": {"type": pre_tokenizer}, "normalizer": normalizer})
    (directory / "tokenizer.json").write_text(text)


@pytest.mark.parametrize("merges", [["Ġ c", "Ġc a"], [["Ġ", "c"], ["Ġc", "a"]]])
def test_tokenizer_json_of_byte_bpe_is_read(roberta, merges):
    fast(roberta, merges)
    read = read_huggingface(str(roberta))
    assert (read.tokenizer.vocabulary, read.tokenizer.merges) == (BYTES.vocabulary, BYTES.merges)


def test_invalid_vocabularies_are_named(roberta):
    (roberta / "model.safetensors").unlink()  # refused before anything is read
    merges, vocabulary = roberta / "merges.txt", roberta / "vocab.json"
    merges.write_text("#version: 0.2\nĠ c\nĠc\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"merges.txt: merge 2 is 'Ġc'; it must be two tokens"):
        read_huggingface(str(roberta))
    ids = json.loads(vocabulary.read_text())
    vocabulary.write_text(json.dumps({**ids, "Ġca": 500}))
    with pytest.raises(InputError, match=rf"vocab.json: no token has the id {len(ids) - 1}"):
        read_huggingface(str(roberta))
    vocabulary.write_text(json.dumps({**ids, "more": len(ids)}))
    with pytest.raises(InputError, match=rf"vocab.json has {len(ids) + 1} tokens, but the word embeddings"):
        read_huggingface(str(roberta))
    merges.unlink()
    vocabulary.write_text(json.dumps(ids))
    with pytest.raises(InputError, match=r"merges.txt is missing"):
        read_huggingface(str(roberta))
    fast(roberta, [], pre_tokenizer="Metaspace")
    with pytest.raises(
        InputError, match=r"tokenizer.json is a BPE tokenizer; only WordPiece, byte-level BPE and Unigram"
    ):
        read_huggingface(str(roberta))
    fast(roberta, [], further=[{"content": "|||", "id": 9, "special": False, "lstrip": True}])
    with pytest.raises(InputError, match=r"tokenizer.json: added token '\|\|\|' has lstrip=True, which no tokenizer"):
        read_huggingface(str(roberta))


def test_add_prefix_space_is_reported(roberta):
    (roberta / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    (remark,) = read_huggingface(str(roberta)).remarks
    assert "adds a space before every text" in remark
