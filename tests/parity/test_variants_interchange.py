"""BERT and its relatives from and to `transformers`: the same outputs at every layer, the same tensors around.

`make parity`; torch and transformers are no requirement of the product.
"""

import dataclasses

import numpy as np
import pytest
import torch
import transformers

from bert_keras.convert.families.table import FAMILIES
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraGenerator
from bert_keras.models.layers import BertEmbeddings
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS as BPE_TOKENS
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, byte_alphabet
from bert_keras.tokenizers.protocol import FORMATS
from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer, model_with_ids
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models import every_model, tiny_encoders
from tests.support.models.model_folders import read_huggingface, write_huggingface
from tests.support.models.tiny_sentencepiece import tiny_sentencepiece, trained

TOLERANCE = 2e-5
CLASSES = {
    **{"bert": "Bert", "roberta": "Roberta", "electra": "Electra", "modernbert": "ModernBert", "albert": "Albert"},
    **{"distilbert": "DistilBert", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"},
    **{"mpnet": "MPNet", "deberta-v2": "DebertaV2"},
}
TEXT = "The cats sat, café!"
VOCABULARY = [*SPECIAL_TOKENS, "the", "cat", "##s", "sat", ",", "!", "cafe", "The", "café"]
WORDS, CASED = BertTokenizer(VOCABULARY, lower_case=True), BertTokenizer(VOCABULARY, lower_case=False)
BYTES = ByteBpeTokenizer(
    [*BPE_TOKENS[:4], *byte_alphabet(), "Ġc", "at", "Ġcat", "<mask>"], [("Ġ", "c"), ("a", "t"), ("Ġc", "at")]
)
T = 12
SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 72}
BERT = BertConfig(len(WORDS.vocabulary), **SIZES, max_position_embeddings=T, hidden_act="gelu_erf")
ROBERTA = BertConfig(
    len(BYTES.vocabulary),
    **SIZES,
    max_position_embeddings=T,
    type_vocab_size=1,
    layer_norm_eps=1e-5,
    hidden_act="gelu_erf",
)

MODERN = dataclasses.replace(
    every_model.MODERN,
    vocab_size=len(WORDS.vocabulary),
    **SIZES,
    max_position_embeddings=T,
    layer_norm_eps=1e-5,
    hidden_act="gelu_erf",
    global_attn_every_n_layers=3,
)
PIECES = tiny_sentencepiece()
ALBERT = dataclasses.replace(
    BERT, vocab_size=len(PIECES.vocabulary), hidden_act="gelu_tanh", embedding_width=20, shared_layers=True
)
MPNET = dataclasses.replace(ROBERTA, vocab_size=40, **tiny_encoders.MPNET_FIELDS)
DEBERTA = dataclasses.replace(BERT, vocab_size=40, layer_norm_eps=1e-7, **tiny_encoders.DEBERTA_FIELDS)
DEBERTA_APART = dataclasses.replace(DEBERTA, shares_position_keys=False)
DISTIL_WORDS = BertTokenizer(WORDS.vocabulary, True, FORMATS["distilbert"])
DISTIL = dataclasses.replace(BERT, type_vocab_size=0)
# KLUE's RoBERTa: padding must be 1.
KLUE_WORDS = BertTokenizer(["[CLS]", *(t for t in WORDS.vocabulary if t != "[CLS]")], True, FORMATS["distilbert"])
KLUE = dataclasses.replace(ROBERTA, vocab_size=len(KLUE_WORDS.vocabulary))
XLM_PIECES, CAMEMBERT_PIECES = (
    SentencePieceTokenizer(model_with_ids(trained(kind=kind), kind), FORMATS["roberta"])
    for kind in ("xlm-roberta", "camembert")
)
XLM, CAMEMBERT = (
    dataclasses.replace(ROBERTA, vocab_size=len(tokenizer.vocabulary)) for tokenizer in (XLM_PIECES, CAMEMBERT_PIECES)
)
MODERN_BYTES = dataclasses.replace(MODERN, vocab_size=len(BYTES.vocabulary))


def modern_backbone(config):
    return BertBackbone(config, has_pooler=False)


def electra_backbone(config):
    embeddings = BertEmbeddings(config.embeddings, name="embeddings")
    return BertBackbone(config.discriminator, has_pooler=False, embeddings=embeddings)


# Their class: ours, its configuration, the family, the tokenizer. Embeddings of ELECTRA may be as wide as the encoder.
ELECTRA, WIDE = ElectraConfig(BERT, 20, 1.0), ElectraConfig(BERT, 32, 1.0)
CASES = [
    ("BertForPreTraining", BertForPreTraining, BERT, "bert", WORDS),
    ("BertForPreTraining", BertForPreTraining, dataclasses.replace(BERT, hidden_act="gelu_tanh"), "bert", CASED),
    ("BertModel", BertBackbone, BERT, "bert", None),
    ("RobertaForMaskedLM", RobertaForMaskedLM, ROBERTA, "roberta", BYTES),
    ("RobertaModel", BertBackbone, ROBERTA, "roberta", BYTES),
    ("RobertaForMaskedLM", RobertaForMaskedLM, KLUE, "roberta", KLUE_WORDS),
    ("XLMRobertaForMaskedLM", RobertaForMaskedLM, XLM, "xlm-roberta", XLM_PIECES),
    ("CamembertForMaskedLM", RobertaForMaskedLM, CAMEMBERT, "camembert", CAMEMBERT_PIECES),
    ("DistilBertForMaskedLM", RobertaForMaskedLM, DISTIL, "distilbert", DISTIL_WORDS),
    ("DistilBertModel", modern_backbone, DISTIL, "distilbert", DISTIL_WORDS),
    ("ElectraForPreTraining", ElectraDiscriminator, ELECTRA, "electra", WORDS),
    ("ElectraForPreTraining", ElectraDiscriminator, WIDE, "electra", WORDS),
    ("ElectraForMaskedLM", ElectraGenerator, ELECTRA, "electra", WORDS),
    ("ElectraModel", electra_backbone, ELECTRA, "electra", WORDS),
    ("ModernBertForMaskedLM", RobertaForMaskedLM, MODERN, "modernbert", WORDS),
    ("ModernBertForMaskedLM", RobertaForMaskedLM, MODERN_BYTES, "modernbert", BYTES),
    ("AlbertForMaskedLM", RobertaForMaskedLM, ALBERT, "albert", PIECES),
    ("AlbertModel", BertBackbone, ALBERT, "albert", PIECES),
    ("MPNetForMaskedLM", RobertaForMaskedLM, MPNET, "mpnet", None),
    ("MPNetModel", BertBackbone, MPNET, "mpnet", None),
    ("DebertaV2ForMaskedLM", RobertaForMaskedLM, DEBERTA, "deberta-v2", None),
    ("DebertaV2Model", modern_backbone, DEBERTA_APART, "deberta-v2", None),
    ("ModernBertModel", modern_backbone, dataclasses.replace(MODERN, local_attention=0), "modernbert", WORDS),
]


def random_model(model_class, config):
    """Every weight is random: zeros and ones would hide one that is left out, or put elsewhere."""
    model = model_class(config)
    model.build()
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(0, 0.3, weight.shape) for weight in model.get_weights()])
    return model


def random_inputs(vocab_size, segments):
    """Rows of different lengths; no token is padding's, 0 or 1: `transformers` counts a RoBERTa's positions by it."""
    rng = np.random.default_rng(1)
    mask = (np.arange(T) < [[T], [7], [1]]).astype("int64")
    ids = rng.integers(2, vocab_size, (3, T)) * mask
    return {"input_ids": ids, "input_mask": mask, "segment_ids": rng.integers(0, segments, (3, T)) * mask}


def their_outputs(model, inputs):
    """Every layer's end, then the logits of each head, or the pooled output."""
    ids = np.where(inputs["input_mask"], inputs["input_ids"], model.config.pad_token_id)
    names = ["input_mask", "segment_ids"][: 1 + hasattr(model.config, "type_vocab_size")]
    tensors = [torch.from_numpy(x) for x in (ids, *(inputs[name] for name in names))]
    with torch.no_grad():
        result = model.eval()(*tensors, output_hidden_states=True)
    names = ("logits", "prediction_logits", "seq_relationship_logits", "pooler_output")
    return [layer.numpy() for layer in (*result.hidden_states[1:], *(result[name] for name in names if name in result))]


def our_outputs(model, inputs):
    outputs = model({**inputs, "masked_lm_positions": np.tile(np.arange(T), (3, 1))})
    logits = [outputs[name] for name in ("mlm_logits", "nsp_logits", "discriminator_logits") if name in outputs]
    pooled = [outputs["pooled_output"]] if not logits and model.has_pooler else []
    return [*outputs["encoder_outputs"], *logits, *pooled]


def assert_same_function(ours, theirs):
    config = theirs.config
    inputs = random_inputs(config.vocab_size, getattr(config, "type_vocab_size", 0) or 1)
    mine, others = our_outputs(ours, inputs), their_outputs(theirs, inputs)
    assert len(mine) == len(others) >= config.num_hidden_layers
    real = inputs["input_mask"] == 1
    for number, (a, b) in enumerate(zip(mine, others, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        at = real if a.shape[:2] == real.shape else ...  # what is computed of padding differs
        np.testing.assert_allclose(a[at], b[at], rtol=0, atol=TOLERANCE, err_msg=str(number))


def assert_equal_weights(ours, others):
    for one, other in zip(ours.weights, others.weights, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=one.path)


@pytest.mark.parametrize(("name", "model_class", "config", "family", "tokenizer"), CASES)
def test_transformers_loads_what_is_written(tmp_path, name, model_class, config, family, tokenizer):
    ours = random_model(model_class, config)
    write_huggingface(ours, tokenizer, str(tmp_path), family)
    theirs, report = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert_same_function(ours, theirs)
    assert type(transformers.AutoModel.from_pretrained(tmp_path)).__name__ == f"{CLASSES[family]}Model"

    theirs.save_pretrained(tmp_path / "again")
    if tokenizer is None:
        assert_equal_weights(read_huggingface(str(tmp_path / "again")).model, ours)
        return
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert their_tokenizer(TEXT, add_special_tokens=False).input_ids == list(tokenizer.encode([TEXT])[0])
    with_special = their_tokenizer(TEXT).input_ids
    assert (with_special[0], with_special[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
    their_tokenizer.save_pretrained(tmp_path / "again")
    again = read_huggingface(str(tmp_path / "again"))
    assert (again.family, again.untrained, again.remarks) == (family, (), ())
    assert again.tokenizer.vocabulary == tokenizer.vocabulary
    if tokenizer is BYTES:
        assert again.tokenizer.merges == BYTES.merges
    elif isinstance(tokenizer, BertTokenizer):
        assert again.tokenizer.normalization == tokenizer.normalization
    assert_equal_weights(again.model, ours)


@pytest.mark.parametrize(("name", "model_class", "config", "family", "tokenizer"), CASES)
def test_a_model_of_transformers_is_read(tmp_path, name, model_class, config, family, tokenizer):
    common = {
        "vocab_size": config.discriminator.vocab_size if family == "electra" else config.vocab_size,
        **SIZES,
        "initializer_range": 0.2,
    }
    if family == "bert":
        common |= {"max_position_embeddings": T, "hidden_act": {"gelu_erf": "gelu"}.get(config.hidden_act, "gelu_new")}
    elif family in ("roberta", "xlm-roberta", "camembert"):
        # Theirs are two rows longer.
        common |= {"max_position_embeddings": T + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    elif family == "distilbert":
        names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
        common = {names.get(name, name): value for name, value in common.items()}
        common |= {"hidden_dim": common.pop("intermediate_size"), "max_position_embeddings": T}
    elif family == "electra":
        common |= {"max_position_embeddings": T, "embedding_size": config.embedding_size}
    elif family == "mpnet":
        common |= {"max_position_embeddings": T + 2, "layer_norm_eps": 1e-5}
    elif family == "deberta-v2":
        common |= {"max_position_embeddings": T, "relative_attention": True, "position_biased_input": False}
        common |= {"norm_rel_ebd": "layer_norm", "pos_att_type": ["c2p", "p2c"], "position_buckets": 4}
        common |= {"share_att_key": config.shares_position_keys, "max_relative_positions": 10}
    elif family == "albert":
        common |= {"max_position_embeddings": T, "embedding_size": config.embedding_width}
    else:
        ids = ("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id")
        common |= {"max_position_embeddings": T, "local_attention": 4, **dict.fromkeys(ids, 0)}
    torch.manual_seed(0)
    theirs = getattr(transformers, name)(getattr(transformers, f"{CLASSES[family]}Config")(**common))
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    read = read_huggingface(str(tmp_path))
    assert (read.family, read.untrained, read.remarks, read.tokenizer) == (family, (), (), None)
    assert_same_function(read.model, theirs)
    write_huggingface(read.model, None, str(tmp_path / "again"), read.family)
    again = getattr(transformers, name).from_pretrained(tmp_path / "again")
    for (key, one), (_, other) in zip(theirs.named_parameters(), again.named_parameters(), strict=True):
        used = slice(2, None) if FAMILIES[family].unused_rows and "position_embeddings" in key else slice(None)
        assert torch.equal(one[used], other[used]), key


@pytest.mark.parametrize(
    ("name", "untrained"),
    [
        ("BertForMaskedLM", ("pooler", "next-sentence head")),
        ("BertForNextSentencePrediction", ("masked-LM head",)),
    ],
)
def test_parts_saved_by_transformers_are_read(tmp_path, name, untrained):
    config = transformers.BertConfig(vocab_size=9, **SIZES, max_position_embeddings=T)
    getattr(transformers, name)(config).save_pretrained(tmp_path)
    assert read_huggingface(str(tmp_path)).untrained == untrained
