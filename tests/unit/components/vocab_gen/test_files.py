"""Files of a vocabulary: writing, importing, copying, and errors."""

import hashlib
import json

import pytest

from bert_keras.errors import InputError
from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS as BPE_SPECIAL_TOKENS
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, byte_alphabet
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from components.vocab_gen.files import copy_vocabulary, import_vocabulary, load_tokenizer, write_vocabulary
from components.vocab_gen.settings import VocabularySettings

WORDPIECE = [*SPECIAL_TOKENS, "cat", "##s"]
BPE = [*BPE_SPECIAL_TOKENS, *byte_alphabet(), "at"]
BYTE_BPE = VocabularySettings(algorithm="byte_bpe")


def test_a_vocabulary_is_read_back(tmp_path):
    write_vocabulary(str(tmp_path / "a"), WORDPIECE, [], VocabularySettings(lower_case=False), words=7)
    copy_vocabulary(str(tmp_path / "a"), str(tmp_path / "b"))
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["vocab.txt", "vocab_spec.json"]
    tokenizer, spec = load_tokenizer(str(tmp_path / "b"))
    assert isinstance(tokenizer, BertTokenizer) and tokenizer.vocabulary == tuple(WORDPIECE)
    assert spec["words"] == 7 and spec["lower_case"] is False and spec["normalization"] == "none"
    assert spec["vocabulary_sha256"] == hashlib.sha256((tmp_path / "a/vocab.txt").read_bytes()).hexdigest()
    settings = VocabularySettings(strip_accents=False, tokenize_chinese_chars=False)
    write_vocabulary(str(tmp_path / "b"), [*WORDPIECE, "möchte", "漢字"], [], settings)
    tokenizer, spec = load_tokenizer(str(tmp_path / "b"))
    assert tokenizer.tokenize("Möchte 漢字") == ["möchte", "漢字"] and spec["normalization"] == "none"


def test_byte_level_bpe_is_read_back_with_its_merges(tmp_path):
    write_vocabulary(str(tmp_path / "a"), BPE, [("a", "t")], BYTE_BPE)
    copy_vocabulary(str(tmp_path / "a"), str(tmp_path / "b"))
    tokenizer, spec = load_tokenizer(str(tmp_path / "b"))
    assert isinstance(tokenizer, ByteBpeTokenizer) and tokenizer.tokenize("cat") == ["c", "at"]
    assert spec["algorithm"] == "byte_bpe" and spec["lower_case"] is False


def test_a_changed_file_is_detected(tmp_path):
    write_vocabulary(str(tmp_path), WORDPIECE, [], VocabularySettings())
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDPIECE, "dog", ""]))
    with pytest.raises(ValueError, match="its sha256 differs"):
        load_tokenizer(str(tmp_path))


def test_a_vocabulary_is_imported_as_the_original_reads_it(tmp_path):
    """`load_vocab` strips tokens; only a line feed ends a line."""
    path = tmp_path / "mine.txt"
    path.write_bytes("".join(f"{token} \r\n" for token in [*WORDPIECE, "a\u2028b"]).encode())
    assert import_vocabulary(str(path), str(tmp_path / "out"), VocabularySettings()) == 8
    tokenizer, spec = load_tokenizer(str(tmp_path / "out"))
    assert tokenizer.vocabulary == (*WORDPIECE, "a\u2028b")
    assert spec["source"] == "given" and spec["vocab_size"] == 8


def test_gpt2s_files_are_imported(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(BPE)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na t\n")
    assert import_vocabulary(str(tmp_path / "vocab.json"), str(tmp_path / "out"), BYTE_BPE) == len(BPE)
    tokenizer, _ = load_tokenizer(str(tmp_path / "out"))
    assert tokenizer.tokenize("at") == ["at"] and tokenizer.vocabulary == tuple(BPE)


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (b"cat\ndog\n", VocabularySettings(), r"lacks \[PAD\], \[UNK\]"),
        ("\n".join([*WORDPIECE, "cat"]).encode(), VocabularySettings(), "'cat' twice"),
        (b"\xff\xfe\x00", VocabularySettings(), "can't decode"),
        (b"", VocabularySettings(), "lacks"),
        ("\n".join(BPE).encode(), BYTE_BPE, "No such file or directory.*merges.txt"),
    ],
)
def test_invalid_vocabulary_files_are_refused_by_name(tmp_path, content, settings, message):
    path = tmp_path / "mine.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"mine\.txt is not a vocabulary for .*{message}") as caught:
        import_vocabulary(str(path), str(tmp_path / "out"), settings)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ids", ['{"a": 0, "b": 2}', "[]", '{"a": "b"}', "{"])
def test_json_other_than_a_vocabulary_is_refused(tmp_path, ids):
    (tmp_path / "vocab.json").write_text(ids)
    with pytest.raises(InputError, match=r"vocab\.json is not a vocabulary for wordpiece"):
        import_vocabulary(str(tmp_path / "vocab.json"), str(tmp_path / "out"), VocabularySettings())


def test_malformed_merges_are_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(BPE))
    (tmp_path / "merges.txt").write_text("a t\na t t\n")
    with pytest.raises(InputError, match="'a t t' is not a pair"):
        import_vocabulary(str(tmp_path / "vocab.txt"), str(tmp_path / "out"), BYTE_BPE)
