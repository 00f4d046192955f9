"""Text to documents: what becomes a document and a segment; shards are the same however they are made."""

import gzip
import hashlib
import random
import time

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from bert_keras.errors import InputError
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.transforms import (
    SPLITTER_CHARACTERS,
    MakeDocuments,
    ReadDocuments,
    WriteDocuments,
    bucket_counts,
    document_id,
    segment,
    split_and_bucket,
    split_documents,
)

LINES = CorpusSettings(segments="lines")
ONE_BUCKET = {"train": 1, "eval": 1}
IN_PROCESS = ("--runner=FnApiRunner",)


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def read(path, settings=LINES):
    """The segments of each document of a file."""
    return [segments for _, (_, _, segments) in ReadDocuments(settings, ONE_BUCKET).process(path)]


def parse(path):
    """[(id, source, segments)] of a shard."""
    documents = []
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        assert sorted(features) == ["document_id", "segments", "source"]
        values = {name: list(feature.bytes_list.value) for name, feature in features.items()}
        (identity,), (source,) = values["document_id"], values["source"]
        documents.append((identity, source.decode(), [s.decode() for s in values["segments"]]))
    return documents


# From lines to documents to segments.


def test_blank_lines_or_files_separate_documents():
    lines = ["\n", " one \n", "two\n", " \t\n", "\n", "three"]
    assert list(split_documents(lines, CorpusSettings())) == [["one", "two"], ["three"]]
    assert list(split_documents(lines, CorpusSettings(documents="files"))) == [["one", "two", "three"]]
    assert list(split_documents(["\n", " "], CorpusSettings(documents="files"))) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("compress", [False, True], ids=["text", "gz"])
def test_line_ends_marks_and_gz_do_not_show(tmp_path, end, mark, compress):
    content = (mark + end.join(["One.", "Two, ü.", "", "Three.", ""])).encode()
    path = write(tmp_path / ("a.gz" if compress else "a.txt"), gzip.compress(content) if compress else content)
    assert read(path) == [["One.", "Two, ü."], ["Three."]]


def test_a_file_is_one_document(tmp_path):
    path = write(tmp_path / "a.txt", "One.\n\nTwo.\n")
    assert read(path, CorpusSettings(documents="files", segments="lines")) == [["One.", "Two."]]


def test_an_undecodable_byte_becomes_the_replacement_character(tmp_path):
    assert read(write(tmp_path / "a.txt", b"caf\xe9 open\n")) == [["caf\ufffd open"]]


def test_a_truncated_gz_is_refused_by_name(tmp_path):
    path = write(tmp_path / "a.gz", gzip.compress(random.Random(0).randbytes(300_000).hex().encode())[:-9])
    with pytest.raises(InputError, match=r"a\.gz: cannot be read \(Compressed file ended"):
        read(path)


def test_segments():
    lines = ["Dr. Smith wrote 3.14. He", "left!  Did he?"]
    assert segment(lines, LINES) == lines
    assert segment(lines, CorpusSettings()) == ["Dr. Smith wrote 3.14.", "He left!", "Did he?"]
    chinese = ["这是一个句子。这是第二个。", "第三个。"]
    expected = ["这是一个句子。", "这是第二个。", "第三个。"]
    assert segment(chinese, CorpusSettings(language="zh")) == segment(chinese, CorpusSettings()) == expected


def test_sentences_across_the_splitters_pieces_stay_whole():
    # 41 characters each: 4096 is no multiple, so pieces end inside sentences.
    sentences = [f"This is the sentence with number {i:06d}." for i in range(1000)]
    assert segment([" ".join(sentences)], CorpusSettings()) == sentences
    assert segment(sentences, CorpusSettings()) == sentences


def test_a_sentence_without_an_end_is_cut_at_blanks():
    words = "lorem ipsum " * 3000
    cut = segment([words], CorpusSettings())
    assert " ".join(cut) == words.strip()
    assert len(cut) == 9 and max(map(len, cut)) <= SPLITTER_CHARACTERS
    no_blank = "x" * (2 * SPLITTER_CHARACTERS + 1)
    assert segment([no_blank], CorpusSettings()) == [no_blank[:SPLITTER_CHARACTERS]] * 2 + ["x"]


@pytest.mark.parametrize("text", ["word ", "x", "这是一个句子。", "这是", "A sentence. "])
def test_work_on_a_very_long_line_is_linear(monkeypatch, text):
    """Counted in characters shown to the splitter, whose own time grows with the square; and it takes seconds."""
    import sentencex

    shown = []

    def counted(language, text, split=sentencex.segment):
        shown.append(len(text))
        return split(language, text)

    monkeypatch.setattr(sentencex, "segment", counted)
    characters = 1_000_000
    start = time.process_time()
    segments = segment([(text * characters)[:characters]], CorpusSettings())
    assert max(shown) <= SPLITTER_CHARACTERS and sum(shown) < 1.1 * characters
    assert sum(map(len, segments)) > 0.75 * characters
    assert time.process_time() - start < 10


# Identity, split and bucket.


def test_the_id_is_of_the_content_alone():
    assert document_id(["a", "b"]) == hashlib.sha256(b"a\nb").digest()[:16]
    assert document_id(["a b"]) != document_id(["a", "b"])


def test_split_and_bucket_are_independent_and_in_proportion():
    settings = CorpusSettings(eval_fraction=0.2)
    drawn = [split_and_bucket(document_id([str(i)]), settings, {"train": 4, "eval": 2}) for i in range(5000)]
    held_out = [bucket for split, bucket in drawn if split == "eval"]
    # Five standard errors: 5 sqrt(5000 * 0.2 * 0.8) = 141; 5 sqrt(1000 / 4) = 79; 5 sqrt(4000 * 3 / 16) = 137.
    assert abs(len(held_out) - 1000) < 141
    assert abs(sum(held_out) - len(held_out) / 2) < 79
    for bucket in range(4):
        assert abs(drawn.count(("train", bucket)) - 1000) < 137


def test_bucket_counts_bound_the_size_of_a_shard():
    # 1000 bytes, a fifth held out, 100 a bucket: 800 / 100 and 200 / 100.
    assert bucket_counts(1000, CorpusSettings(eval_fraction=0.2, bucket_bytes=100)) == {"train": 8, "eval": 2}
    assert bucket_counts(1001, CorpusSettings(eval_fraction=0.2, bucket_bytes=100)) == {"train": 9, "eval": 3}
    assert bucket_counts(0, CorpusSettings()) == ONE_BUCKET


# Whole runs.


def make(paths, output, settings, args=IN_PROCESS, total_bytes=3000):
    """Runs MakeDocuments; returns {relative path: bytes of the shard}."""
    buckets = bucket_counts(total_bytes, settings)
    with beam.Pipeline(options=PipelineOptions(list(args))) as pipeline:
        pipeline | beam.Create(paths) | MakeDocuments(settings, buckets, str(output))
    return {str(p.relative_to(output)): p.read_bytes() for p in sorted(output.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Five files of 20 documents; a third of them occurs again in another file, with other line ends."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(0)
    documents = [[f"Word{rng.random()} is here." for _ in range(rng.randint(1, 4))] for _ in range(75)]
    copies = documents + rng.sample(documents, 25)
    rng.shuffle(copies)
    paths = []
    for number in range(5):
        text = "\n\n".join("\n".join(d) for d in copies[20 * number : 20 * number + 20])
        paths.append(write(folder / f"{number}.txt", text.replace("\n", "\r\n") if number % 2 else text))
    return paths, documents


SMALL = CorpusSettings(eval_fraction=0.3, bucket_bytes=600)


def test_each_document_once_and_in_one_split(tmp_path, corpus):
    paths, documents = corpus
    shards = make(paths, tmp_path, SMALL)
    # 3000 bytes of text said, 600 a bucket: ceil(2100 / 600) and ceil(900 / 600).
    assert sorted(shards) == [
        *(f"Split-eval/documents-{i:05d}-of-00002.tfrecord" for i in range(2)),
        *(f"Split-train/documents-{i:05d}-of-00004.tfrecord" for i in range(4)),
    ]
    by_split = {s: [d for p in sorted(tmp_path.glob(f"Split-{s}/*")) for d in parse(p)] for s in ("train", "eval")}
    ids = [{identity for identity, _, _ in by_split[split]} for split in ("train", "eval")]
    assert not ids[0] & ids[1]
    found = by_split["train"] + by_split["eval"]
    assert len(found) == 75 and len(ids[0] | ids[1]) == 75
    assert {tuple(segments) for _, _, segments in found} == {tuple(d) for d in documents}
    assert all(identity == document_id(segments) and source in paths for identity, source, segments in found)


@pytest.mark.parametrize(
    "args",
    [
        ("--runner=FnApiRunner", "--direct_num_workers=2", "--direct_running_mode=multi_threading"),
        ("--runner=BundleBasedDirectRunner",),
    ],
    ids=["two workers", "another runner"],
)
def test_the_same_bytes_for_any_runner_workers_and_order_of_reading(tmp_path, corpus, args):
    paths, _ = corpus
    expected = make(paths, tmp_path / "one", SMALL)
    assert make(paths[::-1], tmp_path / "two", SMALL, args) == expected


def test_every_bucket_gets_a_shard(tmp_path):
    shards = make([write(tmp_path / "a.txt", "One.")], tmp_path / "out", SMALL)
    assert len(shards) == 6 and sum(map(bool, shards.values())) == 1


def test_counts(tmp_path):
    documents = [(b"2", "b.txt", ["ü", "b"]), (b"1", "z.txt", ["a"]), (b"1", "a.txt", ["a"])]
    with beam.Pipeline(options=PipelineOptions(list(IN_PROCESS))) as pipeline:
        counts = (
            pipeline | beam.Create([(("train", 0), documents)]) | beam.ParDo(WriteDocuments(str(tmp_path), ONE_BUCKET))
        )
        # "ü" is two bytes.
        assert_that(counts, equal_to([("train", {"documents": 2, "duplicates": 1, "segments": 3, "bytes": 4})]))
    shard = tmp_path / "Split-train/documents-00000-of-00001.tfrecord"
    assert parse(shard) == [(b"1", "a.txt", ["a"]), (b"2", "b.txt", ["ü", "b"])]
