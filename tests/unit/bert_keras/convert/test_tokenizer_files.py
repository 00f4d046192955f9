"""Tokenizer files of Hugging Face's folders: followed, with the ids of the `tokenizers` library, or refused by name."""

import itertools
import json

import pytest
import tensorflow as tf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from bert_keras.convert.huggingface.sentence_transformers import lower_cased
from bert_keras.convert.initial_weights import initial_folder, initialize
from bert_keras.convert.model_folder import ModelFolder
from bert_keras.convert.onnx.folder import write_onnx
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.saved_model.text_inputs import graph_tokenizer_of
from bert_keras.tokenizers.fast_tokenizer import fast_tokenizer
from bert_keras.tokenizers.tokenizer_files import read_rules
from bert_keras.tokenizers.unicode_tables import Normalization
from bert_keras.tokenizers.vocabulary_files import Vocabulary, read_fast, read_length
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import read, write
from tests.support.models.pushed_folders import without_graph
from tests.support.models.tiny_byte_bpe import tiny_byte_bpe
from tests.support.models.tiny_sentencepiece import albert_fast, tiny_sentencepiece, trained

PIECES = (
    "a ich mo mochte möchte Mochte Möchte 東 京 東京 に行く 한국어 ##chte ##\u0308 ##京 ##に行く . , \u1112\u1161\u11ab"
)
VOCABULARY = [*SPECIAL_TOKENS, *PIECES.split()]
TEXTS = ["Ich möchte, mo\u0308chte. Mochte", "東京に行く 東京", "한국어 한 a東京a", "möchte東 京 MÖCHTE"]
RULES = {
    "uncased": {"do_lower_case": True},
    "cased": {"do_lower_case": False, "strip_accents": None},
    "German, Korean": {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": True},
    "Japanese": {"do_lower_case": False, "tokenize_chinese_chars": False},
    "stripped": {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
}
each_rule = pytest.mark.parametrize("settings", RULES.values(), ids=RULES)
BYTES, SENTENCEPIECE = tiny_byte_bpe(), tiny_sentencepiece()


def library(do_lower_case=True, strip_accents=None, tokenize_chinese_chars=True):
    """The library's tokenizer, as `transformers` builds a BertTokenizer."""
    fast = Tokenizer(models.WordPiece({token: i for i, token in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer(True, tokenize_chinese_chars, strip_accents, do_lower_case)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return fast


def ids_of(fast):
    return [fast.encode(text, add_special_tokens=False).ids for text in TEXTS]


def put(directory, settings, fast=None, **others):
    """Writes `tokenizer_config.json`, `tokenizer.json` (a text or a tokenizer) and other files."""
    for name, fields in {"tokenizer_config": settings, "config": {}, **others}.items():
        (directory / f"{name}.json").write_text(json.dumps(fields))
    if fast:
        (directory / "tokenizer.json").write_text(fast if isinstance(fast, str) else fast.to_str())


def rules_of(directory, vocabulary=None):
    return read_rules(str(directory), vocabulary or Vocabulary(VOCABULARY))


def changed(fast, **parts):
    """The text of a tokenizer with other parts; "model.x" is a field of the model."""
    fields = json.loads(fast.to_str())
    for name, value in parts.items():
        part, _, field = name.partition("__")
        fields = {**fields, part: {**fields[part], field: value} if field else value}
    return json.dumps(fields)


@each_rule
@pytest.mark.parametrize("with_fast", [False, True])
def test_rules_are_followed_with_the_ids_of_the_library(tmp_path, settings, with_fast):
    fast = library(**settings)
    put(tmp_path, {**settings, "tokenizer_class": "BertTokenizer"}, fast if with_fast else None)
    rules, remarks = rules_of(tmp_path)
    tokenizer = BertTokenizer(VOCABULARY, **rules)
    ids, splits = tokenizer.encode(TEXTS)
    expected = ids_of(fast)
    assert not remarks and [ids[a:b].tolist() for a, b in itertools.pairwise(splits)] == expected
    assert graph_tokenizer_of(tokenizer)(tf.constant(TEXTS)).to_list() == expected
    assert ids_of(fast_tokenizer(tokenizer)) == expected


@each_rule
def test_a_class_without_rules_takes_those_of_tokenizer_json(tmp_path, settings):
    put(tmp_path, {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True}, library(**settings))
    rules = Normalization(**rules_of(tmp_path)[0])
    theirs = {"tokenize_chinese_chars": True, **settings}
    expected = theirs["do_lower_case"], theirs.get("strip_accents"), theirs["tokenize_chinese_chars"]
    assert rules == Normalization(*expected)


def test_without_do_lower_case_the_flag_decides(tmp_path):
    put(tmp_path, {"strip_accents": False}, library(False))
    assert rules_of(tmp_path)[0] == {"strip_accents": False}
    tokenizer = Vocabulary(VOCABULARY, rules={"strip_accents": False}).tokenizer("folder", cased=False)
    assert tokenizer.normalization == Normalization(True, False)
    # A flag that contradicts the folder takes the accents along.
    tokenizer = Vocabulary(VOCABULARY, rules=Normalization(True).fields).tokenizer("folder", cased=True)
    assert tokenizer.normalization == Normalization(False)
    put(tmp_path, {}, library())  # where both say that text is lower-cased it is
    assert rules_of(tmp_path)[0]["lower_case"] is True


ALBERT = albert_fast(trained())
ALBERT.post_processor = fast_tokenizer(SENTENCEPIECE).post_processor
ROBERTA = fast_tokenizer(BYTES)
KINDS = {
    "BERT": (Vocabulary(VOCABULARY), library(), {"do_lower_case": True}),
    "RoBERTa": (Vocabulary(list(BYTES.vocabulary), list(BYTES.merges)), ROBERTA, {"add_prefix_space": False}),
    "ALBERT": (
        Vocabulary(list(SENTENCEPIECE.vocabulary), sentencepiece=SENTENCEPIECE.model),
        ALBERT,
        {"do_lower_case": True},
    ),
}
OTHERS = [VOCABULARY[-1], *VOCABULARY[1:-1], VOCABULARY[0]]


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        ("BERT", {"word_tokenizer_type": "mecab"}, r'tokenizer_config.json: word_tokenizer_type is "mecab"'),
        ("BERT", {"subword_tokenizer_type": "character"}, r'is "character"; supported: "wordpiece"'),
        ("BERT", {"tokenizer_class": "BertJapaneseTokenizer"}, r'is "BertJapaneseTokenizer"; supported'),
        ("BERT", {"tokenizer_class": "RobertaTokenizerFast"}, "supported: BertTokenizer, .* for WordPiece; no"),
        ("RoBERTa", {"tokenizer_class": "GPT2Tokenizer"}, "supported: RobertaTokenizer, .* for BPE"),
        ("ALBERT", {"tokenizer_class": "XLNetTokenizer"}, "supported: AlbertTokenizer, .* for Unigram"),
        ("BERT", {"do_basic_tokenize": False}, "do_basic_tokenize is false; supported: true"),
        ("BERT", {"never_split": ["[E1]"]}, r'never_split is \["\[E1\]"\]'),
        ("BERT", {"do_lower_case": "no"}, 'do_lower_case is "no"; supported: true or false'),
        ("BERT", {"truncation_side": "left"}, 'truncation_side is "left"'),
        ("BERT", {"auto_map": {"AutoTokenizer": ["a.B", None]}}, "auto_map is .*supported: none"),
        ("BERT", {"unk_token": "<unk>"}, r'unk_token is "<unk>"; supported: "\[UNK\]"'),
        ("RoBERTa", {"mask_token": {"content": "[MASK]", "lstrip": True}}, r'mask_token is "\[MASK\]"'),
        ("ALBERT", {"remove_space": False}, "remove_space is false"),
        ("ALBERT", {"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs is"),
    ],
)  # fmt: skip
def test_settings_that_no_tokenizer_here_has_are_refused_by_name(tmp_path, kind, settings, says):
    put(tmp_path, settings)
    with pytest.raises(InputError, match=says):
        rules_of(tmp_path, KINDS[kind][0])


@pytest.mark.parametrize(
    ("kind", "parts", "says"),
    [
        ("BERT", {"normalizer__lowercase": False}, "has lower_case=False, .*json beside it lower_case=True"),
        ("BERT", {"normalizer__strip_accents": False}, "its normalizer has lower_case=True, strip_accents=False, "),
        ("BERT", {"normalizer__handle_chinese_chars": False}, "tokenize_chinese_chars=False, but"),
        ("BERT", {"normalizer__clean_text": False}, "normalizer.clean_text is false"),
        ("BERT", {"normalizer": {"type": "NFC"}}, r'normalizer is {"type": "NFC"}; supported: BertNormalizer'),
        ("BERT", {"normalizer": None}, "normalizer is null; supported: BertNormalizer"),
        ("BERT", {"pre_tokenizer": {"type": "Whitespace"}}, 'is {"type": "Whitespace"}; supported: Bert'),
        ("BERT", {"model__continuing_subword_prefix": ""}, 'model.continuing_subword_prefix is ""'),
        ("BERT", {"model__max_input_chars_per_word": 50}, "is 50; supported: 100 or more"),
        ("BERT", {"model__vocab": {t: i for i, t in enumerate(OTHERS)}}, "its token 0 is '.*', which it is not"),
        ("BERT", {"model__type": "WordLevel"}, 'model.type is "WordLevel"; supported: WordPiece'),
        ("BERT", {"post_processor": None}, r"post_processor is null; supported: \[CLS\] A \[SEP\] B"),
        ("BERT", {"post_processor__single": []}, r'post_processor is {"single": \[\], "pair": '),
        ("BERT", {"truncation": {"direction": "Left"}}, 'truncation.direction is "Left"; supported: "Right"'),
        ("BERT", {"pre_tokenizer": "x"}, r"tokenizer.json is not what `tokenizers` writes \("),
        ("RoBERTa", {"model__ignore_merges": True}, "model.ignore_merges is true; supported: false"),
        ("RoBERTa", {"model__dropout": 0.1}, "model.dropout is 0.1"),
        ("RoBERTa", {"model__merges": []}, "its merges are not those of the file beside it"),
        ("RoBERTa", {"pre_tokenizer__use_regex": False}, "ByteLevel.use_regex is false"),
        ("RoBERTa", {"pre_tokenizer": {"type": "Digits"}}, 'is {"type": "Digits"}; supported: ByteLevel'),
        ("RoBERTa", {"normalizer": {"type": "NFC"}}, 'normalizer is {"type": "NFC"}; supported: none'),
        ("ALBERT", {"normalizer": {"type": "Lowercase"}}, "keep_accents=True, but tokenizer_config.json beside"),
        ("ALBERT", {"normalizer": {"type": "Prepend"}}, 'normalizer is {"type": "Prepend"}; supported: Replace, NFKD'),
        ("ALBERT", {"normalizer": {"type": "Replace", "pattern": {"String": "a"}}}, "supported: Replace"),
        ("ALBERT", {"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "never"}}, "prepend_scheme is"),
    ],
)  # fmt: skip
def test_a_tokenizer_json_that_says_otherwise_is_refused(tmp_path, kind, parts, says):
    vocabulary, fast, settings = KINDS[kind]
    put(tmp_path, settings, fast)
    rules, remarks = rules_of(tmp_path, vocabulary)
    assert not remarks and rules.get("lower_case") == (True if kind == "BERT" else None)
    put(tmp_path, settings, changed(fast, **parts))
    with pytest.raises(InputError, match=says):
        rules_of(tmp_path, vocabulary)


def test_longer_words_than_have_tokens_here_are_a_remark(tmp_path):
    vocabulary, fast, settings = KINDS["BERT"]
    put(tmp_path, settings, changed(fast, model__max_input_chars_per_word=1000))
    (remark,) = rules_of(tmp_path, vocabulary)[1]
    assert "words of up to 1000 characters have tokens there; here up to 200" in remark


def test_what_only_rare_texts_show_is_a_remark(tmp_path):
    fast = library()
    fast.add_special_tokens(["[CLS]", "[unused1]", "<e1>"])
    put(tmp_path, {"do_lower_case": True, "my_note": 1, "extra_special_tokens": {"e": "<e2>"}}, fast)
    _, (unknown, added) = rules_of(tmp_path)
    assert unknown.endswith("tokenizer_config.json: not known and not read: my_note")
    assert "transformers finds <e2>, <e1> in a text before it is tokenized" in added
    tokens = [*VOCABULARY, "[unused1]", "<e1>"]
    assert read_fast(str(tmp_path), len(tokens), "config.json").tokens == tokens
    fast = albert_fast(trained())
    fast.post_processor = ALBERT.post_processor
    fast.add_tokens([SENTENCEPIECE.vocabulary[9]])  # a piece of its own
    put(tmp_path, {}, fast)
    assert rules_of(tmp_path, KINDS["ALBERT"][0]) == ({}, ())
    put(tmp_path, {"add_prefix_space": True}, ROBERTA)
    (remark,) = rules_of(tmp_path, KINDS["RoBERTa"][0])[1]
    assert "adds a space before every text" in remark


def test_the_length_may_have_its_old_name(tmp_path):
    put(tmp_path, {"max_len": 9})
    assert read_length(str(tmp_path), 12) == 9 and not rules_of(tmp_path)[1]


def test_sentence_transformers_lower_cases_before_the_tokenizer(tmp_path):
    def rules(kind="BERT", cased=True, **fields):
        modules = [{"type": "Transformer", "path": ""}]
        put(tmp_path, {"do_lower_case": not cased}, modules=modules, sentence_bert_config=fields)
        return lower_cased(str(tmp_path), KINDS[kind][0], rules_of(tmp_path, KINDS[kind][0])[0])

    assert rules(do_lower_case=True) == {"lower_case": True, "strip_accents": False}
    assert rules(do_lower_case=True, cased=False) == {"lower_case": True}
    assert rules(do_lower_case=False) == {"lower_case": False}
    with pytest.raises(InputError, match=r"sentence_bert_config.json: do_lower_case is true; .*remove modules.json"):
        rules("RoBERTa", do_lower_case=True)
    with pytest.raises(InputError, match=r"sentence_bert_config.json: processing_kwargs is .*supported: \{\}"):
        rules(processing_kwargs={"text": {"padding": True}})
    # Saved by sentence-transformers: its own step before the tokenizer's.
    fast = library(False)
    fast.normalizer = normalizers.Sequence([normalizers.Lowercase(), fast.normalizer])
    put(tmp_path, {"tokenizer_class": "PreTrainedTokenizerFast"}, fast)
    assert rules_of(tmp_path)[0] == {"lower_case": True, "strip_accents": False, "tokenize_chinese_chars": True}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("German, Korean", "Japanese") else pytest.mark.slow) for name in RULES],
)
def test_every_folder_keeps_the_rules(tmp_path, name):
    """Each format's files give the same tokenizer again, and so does the graph of the pushed model."""
    settings = RULES[name]
    put(tmp_path, settings)
    tokenizer = BertTokenizer(VOCABULARY, **rules_of(tmp_path)[0])
    model = BertBackbone(BertConfig(len(VOCABULARY), 8, 1, 1, 8, max_position_embeddings=12))
    model.build()
    folders = {name: str(tmp_path / name) for name in ("hf", "keras-hub", "tf1", "bert-tfx", "onnx")}
    rules, served = tokenizer.normalization, []
    for format_, directory in folders.items():
        unknown = {"tf1": rules.strip_accents != rules.lower_case, "keras-hub": False}.get(format_)
        if unknown is not None and (unknown or not rules.tokenize_chinese_chars):
            with pytest.raises(InputError, match=r"cannot store \w+=.* write the model with --to hf"):
                write(format_, model, tokenizer, directory, "bert")
        elif format_ == "onnx":
            write_onnx(ModelFolder.in_memory(model, tokenizer), directory, "none")
            assert ids_of(Tokenizer.from_file(f"{directory}/tokenizer.json")) == ids_of(library(**settings))
            spec = json.loads((tmp_path / format_ / "vocab_spec.json").read_text())
            assert spec == {"algorithm": "wordpiece", **rules.fields}
        else:
            further = {"embedding": EmbeddingSettings("mean")} if format_ == "bert-tfx" else {}
            with without_graph() as pushed:
                write(format_, model, tokenizer, directory, "bert", **further)
            served = [*pushed, *served]
            again = read(format_, directory, not rules.lower_case if format_ == "tf1" else None).tokenizer
            assert again.normalization == rules
    tokens = served[0]["encode"](tf.constant(TEXTS[:1]))["tokens"].numpy()[0]
    assert [token.decode() for token in tokens] == library(**settings).encode(TEXTS[0]).tokens
    if rules.strip_accents != rules.lower_case:
        other = BertTokenizer(VOCABULARY, lower_case=rules.lower_case)
        with pytest.raises(InputError, match=r"its vocabulary has strip_accents=\w+, the examples' \w+: make them"):
            initialize(model, folders["hf"], None, other)
    assert initial_folder(folders["hf"])[1].normalization == rules


def test_a_tokenizer_json_of_ours_is_read_again(tmp_path):
    """As `write_huggingface` does for a ModernBERT: its normalizer is made of the tables."""
    tokenizer = BertTokenizer(VOCABULARY, True, strip_accents=False)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True, "strip_accents": False}
    put(tmp_path, settings, fast_tokenizer(tokenizer))
    assert rules_of(tmp_path)[0] == {"lower_case": True, "strip_accents": False}
    put(tmp_path, settings, fast_tokenizer(BertTokenizer(VOCABULARY, True)))
    with pytest.raises(InputError, match=r"tokenizer.json: normalizer is"):
        rules_of(tmp_path)
