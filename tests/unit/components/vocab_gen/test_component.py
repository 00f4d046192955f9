"""VocabGen in TFX: its inputs, and its output if the vocabulary cannot be made."""

import json

import pytest
import tensorflow as tf
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import encode_split_names
from tfx.types.channel_utils import as_channel

from bert_keras.errors import InputError
from components.artifacts import Vocabulary
from components.corpus_gen.inputs import InputFile
from components.io.shards import write_shard
from components.vocab_gen.component import Executor, VocabGen
from components.vocab_gen.settings import VocabularySettings
from pipeline.runners.run_steps import BEAM_PIPELINE_ARGS


@pytest.fixture
def learn(tmp_path):
    """`learn(vocab_size)` runs the executor on "train train" and "held out" documents; returns the output folder."""
    documents, vocabulary = standard_artifacts.Examples(), Vocabulary()
    documents.uri, vocabulary.uri = str(tmp_path / "documents"), str(tmp_path / "vocabulary")
    documents.split_names = encode_split_names(["train", "eval"])
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


def test_a_given_vocabulary_is_known_by_its_merges_too(tmp_path):
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


def test_a_changed_vocabulary_file_causes_a_new_execution(tmp_path):
    path = tmp_path / "mine.txt"

    def properties(text):
        path.write_text(text)
        documents = as_channel([standard_artifacts.Examples()])
        return VocabGen(documents, 6, VocabularySettings(), InputFile(str(path), 1)).spec.exec_properties

    assert properties("a") == properties("a") != properties("b")
