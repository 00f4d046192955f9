"""`vocab.txt` and `vocab_spec.json` from document shards, in Beam."""

import hashlib
import json
import os
import unicodedata

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from bert_keras.errors import InputError
from bert_keras.tokenizers.unicode_tables import UNICODE_VERSION
from components.io.shards import write_json, write_shard
from components.vocab_gen import learn, transforms
from components.vocab_gen.files import copy_vocabulary, import_vocabulary, load_tokenizer
from components.vocab_gen.settings import VocabularySettings
from components.vocab_gen.transforms import CountWords, MakeVocabulary

SETTINGS = VocabularySettings(min_word_count=2)
# Two shards; "the" and "caf" + "e" + accent are in both.
SHARDS = [
    [["The café, the end.", "Unique"], ["THE cat sat"]],
    [["the Cat sat; cafe"], ["No 漢字 漢"]],
]
# The five special tokens; for the words seen twice (the 4, café 2, cat 2, sat 2, 漢 2): 8 characters, 5 inside a word.
SMALLEST = 5 + 8 + 5


def write_documents(path, documents):
    def records():
        for segments in documents:
            example = tf.train.Example()
            example.features.feature["segments"].bytes_list.value.extend(s.encode() for s in segments)
            yield example.SerializeToString()

    write_shard(str(path), records())
    return str(path)


@pytest.fixture
def shards(tmp_path):
    return [write_documents(tmp_path / f"documents-{i}", documents) for i, documents in enumerate(SHARDS)]


def make(shards, output, vocab_size=SMALLEST + 2, settings=SETTINGS, exact=True, workers=1, **more):
    output.mkdir()
    options = PipelineOptions(
        [], direct_num_workers=workers, direct_running_mode="multi_threading" if workers > 1 else "in_memory"
    )
    with beam.Pipeline(runner="FnApiRunner", options=options) as pipeline:
        pipeline | beam.Create(shards) | MakeVocabulary(str(output), vocab_size, settings, exact=exact, **more)
    return {path.name: path.read_bytes() for path in output.iterdir()}


def count(paths, **settings):
    """Sum of the words of shards."""
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        words = (
            pipeline
            | beam.Create(paths)
            | beam.ParDo(CountWords(VocabularySettings(**settings)))
            | beam.CombinePerKey(sum)
            | beam.combiners.ToDict()
        )
        words | beam.Map(lambda counts, path: write_json(path, counts), f"{os.path.dirname(paths[0])}/counts.json")
    with open(f"{os.path.dirname(paths[0])}/counts.json") as file:
        return json.load(file)


def test_words_are_counted_as_the_tokenizer_sees_them(shards):
    assert count(shards[:1]) == {"the": 3, "cafe": 1, ",": 1, "end": 1, ".": 1, "unique": 1, "cat": 1, "sat": 1}
    expected = {"the": 1, "Cat": 1, "sat": 1, ";": 1, "cafe": 1, "No": 1, "漢": 2, "字": 1}
    assert count(shards[1:], lower_case=False) == expected
    expected = {"no": 1, "漢字": 1, "漢": 1}
    kept = count(shards, strip_accents=False, tokenize_chinese_chars=False)
    assert expected.items() <= kept.items() and kept["caf\u00e9"] == 1


def test_counts_are_emitted_when_memory_is_full(shards, monkeypatch):
    expected = count(shards)
    monkeypatch.setattr(transforms, "MAX_DISTINCT_WORDS", 3)
    assert count(shards) == expected and expected["the"] == 4


def test_words_of_byte_level_bpe(shards):
    counts = count(shards[1:], algorithm="byte_bpe")
    assert counts["the"] == 1 and counts["ĠCat"] == 1 and counts["Ġcafe"] == 1 and counts["No"] == 1


def test_byte_level_bpe_has_merges(tmp_path, shards):
    settings = VocabularySettings(algorithm="byte_bpe", min_word_count=1)
    files = make(shards, tmp_path / "out", 280, settings)
    assert sorted(files) == ["merges.txt", "vocab.txt", "vocab_spec.json"]
    tokenizer, spec = load_tokenizer(str(tmp_path / "out"))
    assert spec["algorithm"] == "byte_bpe" and spec["lower_case"] is False and spec["vocab_size"] == 280
    assert files["merges.txt"].decode().count("\n") == 1 + 280 - 5 - 256
    assert "".join(tokenizer.tokenize("THE cat 漢")) == "THEĠcatĠæ¼¢"
    assert len(tokenizer.tokenize("the cat sat")) < len("the cat sat")


def test_the_two_files(tmp_path, shards):
    files = make(shards, tmp_path / "out")
    assert make(shards[::-1], tmp_path / "other order") == files
    assert sorted(files) == ["vocab.txt", "vocab_spec.json"]
    tokens = files["vocab.txt"].decode().split("\n")
    assert tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] and tokens[-1] == ""
    assert tokens[5:13] == ["a", "c", "e", "f", "h", "s", "t", "漢"]
    assert tokens[13:18] == ["##a", "##e", "##f", "##h", "##t"]
    assert json.loads(files["vocab_spec.json"]) == {
        "algorithm": "wordpiece",
        "lower_case": True,
        "strip_accents": True,
        "tokenize_chinese_chars": True,
        "character_coverage": 0.9999,
        "min_word_count": 2,
        "normalization": "NFD, marks stripped",
        "unicode_version": UNICODE_VERSION,
        "vocab_size": SMALLEST + 2,
        "vocabulary_sha256": hashlib.sha256(files["vocab.txt"]).hexdigest(),
        "source": "learned",
        "words": 12,
        "distinct_words": 5,
    }


def test_rare_words_of_a_large_corpus_are_dropped_early(tmp_path, shards, monkeypatch):
    """The number of words in one place is bounded, however the shards are distributed."""
    # 19 words, of which 3 may be shown: from a count of 19 / 6 a word is shown at least half a time.
    monkeypatch.setattr(learn, "MAX_WORDS_SHOWN", 3)
    files = make(shards, tmp_path / "one", 500, exact=False)
    spec = json.loads(files["vocab_spec.json"])
    assert (spec["min_word_count"], spec["words"], spec["distinct_words"]) == (4, 4, 1)
    assert "the" in files["vocab.txt"].decode().split("\n")
    monkeypatch.setattr(transforms, "MAX_DISTINCT_WORDS", 2)
    assert make(shards[::-1], tmp_path / "two", 500, exact=False) == files


def test_of_many_words_of_byte_level_bpe_a_sample_is_emitted(tmp_path, monkeypatch):
    """The same for any distribution of the shards: a clause of Chinese is a word, and each is another one."""
    paths = [
        write_documents(tmp_path / f"documents-{shard}", [[f"the {shard}{number:03}" for number in range(500)]])
        for shard in range(4)
    ]
    size = sum(os.path.getsize(path) for path in paths)
    monkeypatch.setattr(transforms, "MAX_BYTES_EMITTED", size // 10)
    settings = VocabularySettings(algorithm="byte_bpe")
    files = make(paths, tmp_path / "one", 500, settings, exact=False)
    spec = json.loads(files["vocab_spec.json"])
    assert 100 < spec["distinct_words"] < 300 and spec["words"] == pytest.approx(4000, rel=0.1)
    assert make(paths[::-1], tmp_path / "two", 500, settings, exact=False) == files


@pytest.mark.parametrize(("algorithm", "size"), [("wordpiece", 35), ("byte_bpe", 268), ("sentencepiece", 30)])
def test_words_of_a_small_source_get_pieces_by_its_rate(tmp_path, algorithm, size):
    """At the rate 100 its ten sentences are as frequent as the other source's thousand; otherwise it is spelt."""
    sources = {
        "en": ["overseas owls", "overseas, owls, seas"] * 500,
        "sw": ["karibu kuku", "karibu, kuku, karibuni"] * 5,
    }
    paths = [
        write_documents(tmp_path / f"documents-00000-of-00001-{name}.tfrecord", [text])
        for name, text in sources.items()
    ]
    words = []
    for rates, spelt in ((None, True), ({"en": 1.0, "sw": 100.0}, False)):
        out, settings = tmp_path / str(spelt), VocabularySettings(algorithm=algorithm)
        files = make(paths, out, size, settings, rates=rates)
        tokenizer, spec = load_tokenizer(str(out))
        words.append(spec["words"])
        tokens = [token.removeprefix("##").strip("Ġ▁") for token in tokenizer.tokenize("karibu kuku")]
        assert (max(map(len, tokens)) == 1) is spelt
    assert words[1] * 1010 == words[0] * 2000
    if algorithm == "sentencepiece":  # the order of the others' shards is changed above
        assert make(paths[::-1], tmp_path / "three workers", size, settings, workers=3, rates=rates) == files


def test_a_sentencepiece_model_has_the_rules_of_its_settings(tmp_path, shards):
    for lower_case, accents, expected in (
        (True, None, ["▁cafe", "▁the"]),
        (True, False, ["▁café", "▁the"]),
        (False, None, ["▁Café", "▁The"]),
    ):
        settings = VocabularySettings("sentencepiece", lower_case, accents)
        out = tmp_path / f"{lower_case} {accents}"
        files = make(shards, out, 64, settings, exact=False)
        tokenizer, spec = load_tokenizer(str(out))
        assert sorted(files) == ["spiece.model", "vocab_spec.json"] and spec["vocab_size"] < 64
        joined = "".join(tokenizer.tokenize("Café  The"))
        assert joined == unicodedata.normalize("NFKC", "".join(expected))
        assert [tokenizer.vocabulary.index(token) for token in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")] == [
            0,
            1,
            2,
            3,
            4,
        ]
    copy_vocabulary(str(out), str(tmp_path / "copied"))
    again, _ = load_tokenizer(str(tmp_path / "copied"))
    assert again.model == tokenizer.model == files["spiece.model"]
    assert import_vocabulary(str(out / "spiece.model"), str(tmp_path / "given"), settings) == len(again.vocabulary)
    assert load_tokenizer(str(tmp_path / "given"))[0].model == again.model
    (tmp_path / "spiece.model").write_bytes(b"text")
    with pytest.raises(InputError, match=r"spiece\.model is not a vocabulary for sentencepiece"):
        import_vocabulary(str(tmp_path / "spiece.model"), str(tmp_path), settings)


def test_a_sentencepiece_model_of_an_impossible_size_is_refused(shards):
    settings = VocabularySettings("sentencepiece", lower_case=False)
    counts = count(shards, algorithm="sentencepiece")
    needed = r"needs a vocabulary of 38 tokens for its characters alone, .*--set model.vocab_size=38 .*or more"
    for words, size, message in (
        (counts, 10, needed),
        (counts, 500, r"supports a vocabulary of .* --set model.vocab_size="),
        ({}, 10, "0 distinct words"),
    ):
        with pytest.raises(InputError, match=message):
            learn.learn_sentencepiece(words, size, settings, exact=True)


def test_an_impossible_vocabulary_size_stops_the_run(tmp_path, shards):
    with pytest.raises(InputError, match=r"vocab_size is 500: .*--set model.vocab_size=\d+") as caught:
        make(shards, tmp_path / "out", 500)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out").iterdir())


def test_a_corpus_without_words_stops_the_run(tmp_path):
    with pytest.raises(InputError, match="0 distinct words"):
        make([write_documents(tmp_path / "empty", [])], tmp_path / "out")
