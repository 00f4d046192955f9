"""Hugging Face's folders as people have them: wrapped names, heads of tasks, vocabularies with padding."""

import dataclasses
import json
import re
import shutil

import pytest
from safetensors.numpy import load_file
from tokenizers import processors

from bert_keras.convert.formats import export
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.tokenizers.fast_tokenizer import fast_tokenizer
from bert_keras.tokenizers.vocabulary_files import read_wordpiece
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import assert_equal, change_tensors, read_huggingface, write_huggingface

TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "a", "cat", "##s", "é"], lower_case=False)
CONFIG = BertConfig(9, 8, 1, 2, 24, max_position_embeddings=6)


@pytest.fixture(scope="module")
def model(random_bert):
    return random_bert(CONFIG, BertForPreTraining)


@pytest.fixture(scope="module")
def written(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("written")
    write_huggingface(model, TOKENIZER, str(directory))
    return directory


@pytest.fixture
def directory(written, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(written, tmp_path / "copy")


@pytest.mark.parametrize(
    ("pattern", "new"),
    [("^", "module."), ("^", "_orig_mod."), ("^", "module._orig_mod."), (r"(encoder|predictions)\.", r"\1._orig_mod.")],
)
@pytest.mark.parametrize("in_parts", [False, True])
def test_names_of_wrapped_models_are_read(model, directory, pattern, new, in_parts):
    change_tensors(directory, lambda tensors: {re.sub(pattern, new, name): value for name, value in tensors.items()})
    if in_parts:
        file = "model-00001-of-00001.safetensors"
        names = dict.fromkeys(load_file(directory / "model.safetensors"), file)
        (directory / "model.safetensors").rename(directory / file)
        (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert_equal(read_huggingface(str(directory)).model, model)


def test_names_of_a_training_s_class_are_refused(directory):
    change_tensors(directory, lambda tensors: {f"model.{name}": value for name, value in tensors.items()})
    says = r"no tensor of BERT, only others \(model.bert.embeddings.*; if .* save the state_dict of the model inside"
    with pytest.raises(InputError, match=says):
        read_huggingface(str(directory))


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({}, [f"[unused{i}]" for i in range(9, 16)]),
        ({"added_tokens.json": {"[E2]": 10, "[E1]": 9}}, ["[E1]", "[E2]", *(f"[unused{i}]" for i in range(11, 16))]),
        ({"added_tokens.json": {"[PAD]": 0}}, [f"[unused{i}]" for i in range(9, 16)]),
        ({"vocab.txt": None, "tokenizer.json": {"[E1]": 9}}, ["[E1]", *(f"[unused{i}]" for i in range(10, 16))]),
    ],
)
def test_padded_word_embeddings_and_added_tokens_are_read(random_bert, tmp_path, capsys, files, names):
    config = dataclasses.replace(CONFIG, vocab_size=16)
    write_huggingface(random_bert(config, BertForPreTraining), None, str(tmp_path))
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENIZER.vocabulary))
    for name, content in files.items():
        (tmp_path / name).unlink() if content is None else (tmp_path / name).write_text(json.dumps(content))
    if "tokenizer.json" in files:
        ids = {token: i for i, token in enumerate(TOKENIZER.vocabulary)}
        added = [{"content": token, "id": i} for token, i in files["tokenizer.json"].items()]
        fast = {"model": {"type": "WordPiece", "vocab": ids}, "added_tokens": added}
        (tmp_path / "tokenizer.json").write_text(json.dumps(fast))
    assert read_huggingface(str(tmp_path), cased=True).tokenizer.vocabulary == (*TOKENIZER.vocabulary, *names)
    told = capsys.readouterr().err
    assert told.count("the word embeddings 16 rows") == 1
    assert told.count("texts are not searched for [E1]") == (names[0] == "[E1]")


@pytest.mark.parametrize(
    ("vocab_size", "added", "says"),
    [
        (16, {"[E1]": 10}, "no token has the id 9; they must be 0, 1, ..., 9"),
        (12, {}, "vocab.txt has 9 tokens, but the word embeddings have 12 rows"),
        (264, {}, "vocab.txt has 9 tokens, but the word embeddings have 264 rows"),
        (9, {f"w{i}": 9 + i for i in range(91)}, "vocab.txt has 100 tokens, but the word embeddings have 9 rows"),
        (106, {f"w{i}": 9 + i for i in range(91)}, "vocab.txt has 100 tokens, but the word embeddings have 106 rows"),
    ],
)
def test_other_sizes_of_vocabularies_are_refused(directory, vocab_size, added, says):
    fields = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**fields, "vocab_size": vocab_size}))
    (directory / "added_tokens.json").write_text(json.dumps(added))
    with pytest.raises(InputError, match=says):
        read_huggingface(str(directory))


def test_a_twentieth_of_the_rows_may_have_no_token(tmp_path):
    """multilingual-e5-small has 250,002 tokens and 250,037 rows, dbmdz's Italian BERTs 31,102 and 32,102."""
    (tmp_path / "vocab.txt").write_text("".join(f"w{i}\n" for i in range(100)))
    assert read_wordpiece(str(tmp_path / "vocab.txt"), 105, "config.json").tokens[99:] == ["w99"] + [
        f"[unused{i}]" for i in range(100, 105)
    ]


@pytest.mark.parametrize(
    ("settings", "types", "segments"),
    [
        ({}, None, [0, 0, 0, 0, 1, 1]),
        ({}, "1", [0, 0, 0, 0, 1, 1]),
        ({}, "0", [0] * 6),
        ({"model_input_names": ["input_ids", "attention_mask"]}, None, [0] * 6),
        ({"model_input_names": ["input_ids", "token_type_ids"]}, "1", [0, 0, 0, 0, 1, 1]),
        ({}, "2", None),
    ],
)
def test_segments_of_a_pair_are_those_of_transformers(directory, settings, types, segments):
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    if types:
        fast = fast_tokenizer(TOKENIZER)
        template = f"[CLS] $A [SEP] $B:{types} [SEP]:{types}"
        special = [(name, TOKENIZER.vocabulary.index(name)) for name in ("[CLS]", "[SEP]")]
        fast.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", template, special)
        fast.save(str(directory / "tokenizer.json"))
    if segments is None:
        with pytest.raises(InputError, match=r"type_id is \[0, 0, 0, 2, 2\]; supported: 0 for the first text, 0 or 1"):
            read_huggingface(str(directory))
        return
    folder = read_huggingface(str(directory))
    assert folder.inputs(["a a"], ["cat"])["segment_ids"][0].tolist() == segments
    export(folder, str(directory / "again"), "hf")
    assert read_huggingface(str(directory / "again")).tokenizer.has_segments == any(segments)


@pytest.mark.parametrize("name", ["vocab.txt", "config.json", "tokenizer_config.json"])
def test_a_byte_order_mark_is_no_text(directory, name):
    (directory / name).write_bytes(b"\xef\xbb\xbf" + (directory / name).read_bytes())
    assert read_huggingface(str(directory)).tokenizer.vocabulary == TOKENIZER.vocabulary
