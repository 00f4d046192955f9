"""Vocabularies in released layouts: offline, in the graph and through a pushed folder they have `transformers`' ids."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.convert.bert_tfx import read_tokenizer
from bert_keras.convert.families.table import FAMILIES
from bert_keras.errors import InputError
from bert_keras.saved_model.text_inputs import TextInputs, graph_tokenizer_of, mask_tokenizer_of
from bert_keras.tasks.sequences import TokenRuns, pair_sequences
from bert_keras.tokenizers.fast_tokenizer import write_fast_tokenizer
from bert_keras.tokenizers.protocol import format_of
from bert_keras.tokenizers.tokenizer_files import read_rules
from bert_keras.tokenizers.vocabulary_files import (
    VOCABULARY_SPEC_FILE,
    read_fast,
    read_sentencepiece,
    read_wordpiece,
    settings_of,
    vocabulary_spec,
    write_vocabulary,
)

GOLDEN = Path(__file__).parents[3] / "support" / "models" / "golden_vocabularies"  # by its make.py
KINDS = [path.name for path in sorted(GOLDEN.iterdir()) if path.is_dir() and path.name[0] != "_"]


def read(folder, kind):
    """The tokenizer of a folder, as `huggingface.folder` reads it, without weights."""
    size = json.loads((folder / "config.json").read_text())["vocab_size"], "config.json"
    vocabulary = read_wordpiece(str(folder / "vocab.txt"), *size)
    vocabulary = vocabulary or read_sentencepiece(str(folder), *size, {}, kind) or read_fast(str(folder), *size)
    has_segments = kind == "deberta-v2"
    format_ = format_of(vocabulary.algorithm, vocabulary.tokens, has_segments)
    assert kind not in FAMILIES or FAMILIES[kind].has_segments == has_segments or kind == "modernbert"
    rules, remarks = read_rules(str(folder), vocabulary)
    assert not remarks
    fields = {**vocabulary.__dict__, "format": format_, "rules": {"lower_case": True, **rules}}
    return type(vocabulary)(**fields).tokenizer(str(folder))


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def tokenizer(kind):
    return read(GOLDEN / kind, kind)


@pytest.fixture
def reference(kind):
    return json.loads((GOLDEN / kind / "ids.json").read_text())


def ids_of(tokenizer, texts):
    ids, splits = tokenizer.encode(texts)
    return [part.tolist() for part in np.split(ids, splits[1:-1])]


def test_ids_and_offsets_are_those_of_transformers_everywhere(tokenizer, reference):
    texts, expected = list(reference["lines"]), list(reference["lines"].values())
    assert ids_of(tokenizer, texts) == expected
    travelled = pickle.loads(pickle.dumps(tokenizer))
    assert ids_of(travelled, texts) == expected and travelled.format == tokenizer.format
    graph, encoded = graph_tokenizer_of(tokenizer), tokenizer.encode_with_offsets(texts)
    assert graph(tf.constant(texts)).to_list() == expected
    served = graph.with_offsets(tf.constant(texts))
    assert encoded.ids.tolist() == served.ids.flat_values.numpy().tolist() == [i for row in expected for i in row]
    np.testing.assert_array_equal(encoded.starts, served.starts)
    np.testing.assert_array_equal(encoded.ends, served.ends)


def test_pairs_and_masks_are_those_of_transformers(tokenizer, reference):
    (*columns,) = zip(*reference["pairs"], strict=True)
    first, second, expected = map(list, columns)
    packed = pair_sequences(*(TokenRuns.of(tokenizer, texts) for texts in (first, second)), 500, tokenizer)
    served = TextInputs(tokenizer, 500, "head")(tf.constant(first), tf.constant(second))
    for name, values in packed.items():
        np.testing.assert_array_equal(values, served[name])
    found = [row[mask > 0].tolist() for row, mask in zip(packed["input_ids"], packed["input_mask"], strict=True)]
    assert found == expected and packed["segment_ids"].max() == tokenizer.has_segments
    masks = mask_tokenizer_of(tokenizer, graph_tokenizer_of(tokenizer))
    assert masks(tf.constant(list(reference["masked"]))).to_list() == list(reference["masked"].values())


def test_a_pushed_folder_and_a_written_one_have_the_same_tokenizer(tokenizer, kind, reference, tmp_path):
    texts = list(reference["lines"])
    write_vocabulary(str(tmp_path), tokenizer)
    (tmp_path / VOCABULARY_SPEC_FILE).write_text(json.dumps(vocabulary_spec(tokenizer)))
    sizes = {"vocab_size": len(tokenizer.vocabulary)}
    (tmp_path / "bert_config.json").write_text(json.dumps(sizes))
    pushed = read_tokenizer(str(tmp_path))
    assert pushed.format == tokenizer.format and vocabulary_spec(pushed) == vocabulary_spec(tokenizer)
    assert ids_of(pushed, texts) == ids_of(tokenizer, texts)
    spec = tmp_path / VOCABULARY_SPEC_FILE
    spec.write_text(spec.read_text().replace('"format": {', '"format": {"cut": 1, '))
    if "format" in vocabulary_spec(tokenizer):
        with pytest.raises(InputError, match=r"vocab_spec.json: format: .*cut"):
            read_tokenizer(str(tmp_path))
    written = tmp_path / "written"
    shutil.copytree(GOLDEN / kind, written, ignore=lambda folder, names: {n for n in names if n != "config.json"})
    settings = write_fast_tokenizer(str(written), tokenizer)
    (written / "tokenizer_config.json").write_text(json.dumps({**settings_of(tokenizer, 64), **settings}))
    again = read(written, kind)
    assert ids_of(again, texts) == ids_of(tokenizer, texts) and again.format == tokenizer.format


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        ("mpnet", {"cls_token": "[CLS]"}, r'cls_token is "\[CLS\]"; supported: "<s>"'),
        ("deberta-v2", {"split_by_punct": True}, "split_by_punct is true; supported: false"),
        ("xlm-roberta", {"add_prefix_space": False}, "add_prefix_space is false; supported: true"),
        ("camembert", {"tokenizer_class": "XLNetTokenizer"}, "supported: AlbertTokenizer, XLMRobertaTokenizer"),
    ],
)
def test_settings_of_the_new_kinds_are_refused_by_name(kind, settings, says, tmp_path):
    shutil.copytree(GOLDEN / kind, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    with pytest.raises(InputError, match=says):
        read(tmp_path, kind)


@pytest.mark.parametrize("kind", ["xlm-roberta", "deberta-v2"])
def test_padding_and_added_tokens_get_rows(kind, tmp_path):
    shutil.copytree(GOLDEN / kind, tmp_path, dirs_exist_ok=True)
    plain = read(tmp_path, kind)
    size = len(plain.vocabulary)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<e1>": size}))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 300}))
    padded = read(tmp_path, kind)
    assert padded.vocabulary[:size] == plain.vocabulary and padded.vocabulary[size] == "<e1>"
    assert len(padded.vocabulary) == 300 and padded.vocabulary[-1] == "[unused299]"
    assert ids_of(padded, ["Hello <e1>"]) == ids_of(plain, ["Hello <e1>"])
    assert graph_tokenizer_of(padded)(tf.constant(["Hello"])).to_list() == ids_of(plain, ["Hello"])


@pytest.mark.parametrize("kind", ["xlm-roberta", "camembert"])
def test_a_sentencepiece_file_has_no_rules_that_its_tokenizer_json_adds(kind, tmp_path):
    shutil.copytree(GOLDEN / kind, tmp_path, dirs_exist_ok=True)
    write_fast_tokenizer(str(tmp_path), read(tmp_path, kind))
    path = tmp_path / "tokenizer.json"
    fast = json.loads(path.read_text())
    assert read(tmp_path, kind)
    lowered = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *fast["normalizer"]["normalizers"]]}
    path.write_text(json.dumps({**fast, "normalizer": lowered}))
    with pytest.raises(InputError, match=r'normalizer is \["Lowercase", .*supported: no Lowercase'):
        read(tmp_path, kind)


def test_a_pointer_of_git_lfs_is_named(tmp_path):
    (tmp_path / "spm.model").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
    with pytest.raises(InputError, match=r"spm.model is a pointer of git-LFS in place of the file; fetch the file"):
        read_sentencepiece(str(tmp_path), 260, "config.json", {}, "deberta-v2")
