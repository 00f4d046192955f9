"""Files of a vocabulary, and VocabGen in TFX."""

import hashlib
import json

import pytest
import tensorflow as tf
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import encode_split_names
from tfx.types.channel_utils import as_channel

from bert_keras.errors import InputError
from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS as BPE_SPECIAL_TOKENS
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, byte_alphabet
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from components.artifacts import Vocabulary
from components.corpus_gen.inputs import InputFile
from components.io.shards import write_shard
from components.vocab_gen.component import Executor, VocabGen
from components.vocab_gen.files import copy_vocabulary, import_vocabulary, load_tokenizer, write_vocabulary
from components.vocab_gen.settings import VocabularySettings
from pipeline.runners.run_steps import BEAM_PIPELINE_ARGS

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
    """`load_vocab` strips tokens; only a line feed ends a line. A byte order mark is no part of the first."""
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeff".encode() + "".join(f"{token} \r\n" for token in [*WORDPIECE, "a\u2028b"]).encode())
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
        (b"cat\ndog\n", VocabularySettings(), r"lacks \[CLS\], \[SEP\], \[PAD\]"),
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
    with pytest.raises(InputError, match="merge 2 is 'a t t'; it must be two tokens"):
        import_vocabulary(str(tmp_path / "vocab.txt"), str(tmp_path / "out"), BYTE_BPE)


@pytest.fixture
def learn(tmp_path):
    """`learn(vocab_size)` runs the executor on "train train" and "held out" documents; returns the output folder."""
    documents, vocabulary = standard_artifacts.Examples(), Vocabulary()
    documents.uri, vocabulary.uri = str(tmp_path / "documents"), str(tmp_path / "vocabulary")
    documents.split_names = encode_split_names(["train", "eval"])
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "corpus.json").write_text("{}")
    for split, text in {"train": b"train train", "eval": b"held held out out"}.items():
        example = tf.train.Example()
        example.features.feature["segments"].bytes_list.value.append(text)
        write_shard(f"{documents.uri}/Split-{split}/documents-0.tfrecord", [example.SerializeToString()])

    def learn(vocab_size, given=None):
        component = VocabGen(as_channel([documents]), vocab_size, VocabularySettings(), given)
        context = Executor.Context(beam_pipeline_args=list(BEAM_PIPELINE_ARGS))
        Executor(context).Do({"documents": [documents]}, {"vocabulary": [vocabulary]}, component.spec.exec_properties)
        return tmp_path / "vocabulary"

    return learn


def test_held_out_text_does_not_affect_the_vocabulary(learn):
    # Five special tokens; a i n r t; ##a ##i ##n ##r; four merges make "train" of them.
    folder = learn(18)
    tokens = (folder / "vocab.txt").read_text().split()
    assert tokens[5:14] == ["a", "i", "n", "r", "t", "##a", "##i", "##n", "##r"] and tokens[-1] == "train"
    assert json.loads((folder / "vocab_spec.json").read_text())["words"] == 2


def test_a_vocabulary_larger_than_the_corpus_supports(learn, tmp_path):
    with pytest.raises(InputError, match=r"supports a vocabulary of 18 tokens .*--set model.vocab_size=18 or less"):
        learn(19)
    assert not (tmp_path / "vocabulary/vocab.txt").exists()


def test_a_given_vocabulary_is_known_by_its_file_and_its_merges(tmp_path):
    def given(algorithm="byte_bpe"):
        file = InputFile(str(tmp_path / "vocab.json"), 2)
        settings = VocabularySettings(algorithm=algorithm)
        return VocabGen(as_channel([standard_artifacts.Examples()]), 9, settings, file).spec.exec_properties["given"]

    (tmp_path / "vocab.json").write_text("{}")
    found = [given()]
    for merges in ("a b\n", "b a\n"):
        (tmp_path / "merges.txt").write_text(merges)
        found += [given(), given("wordpiece")]
        assert given() == found[-2]
    assert len({found[0], found[1], found[3]}) == 3
    assert found[2] == found[4]  # word pieces have no merges
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    assert given("wordpiece") not in found


def test_the_vocabulary_depends_only_on_the_properties():
    def properties(vocab_size, **settings):
        return VocabGen(as_channel([standard_artifacts.Examples()]), vocab_size, VocabularySettings(**settings)).spec

    assert properties(9).exec_properties == properties(9).exec_properties
    assert properties(9).exec_properties != properties(10).exec_properties
    assert properties(9).exec_properties != properties(9, lower_case=False).exec_properties


def test_a_given_vocabulary_is_imported(learn, tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nheld \n")
    given = InputFile(str(path), path.stat().st_size)
    with pytest.raises(InputError, match=r"mine\.txt: has 6 tokens, not 9; --set model.vocab_size=6"):
        learn(9, given)
    folder = learn(6, given)
    assert (folder / "vocab.txt").read_text().split() == path.read_text().split()
    assert json.loads((folder / "vocab_spec.json").read_text())["source"] == "given"
