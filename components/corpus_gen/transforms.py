"""Text files -> document shards, as Beam transforms (no TFX here: workers need only Beam, TensorFlow and this).

A document is one tf.Example: `document_id` bytes[1] (a hash of its content), `segments` bytes[n] (its sentences, in
order) and `source` bytes[1] (the file it came from). Documents go to a split and, within it, to a bucket by their id,
so the shards do not depend on the order of reading, the runner or the number of workers; a document that occurs
twice is kept once, with the first of its sources by name.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterable, Iterator

import apache_beam as beam
import tensorflow as tf

from components.corpus_gen.inputs import READ_ERRORS, cannot_be_read, open_input
from components.corpus_gen.settings import CorpusSettings
from components.shards import shard_name, write_shard

SPLITS = ("train", "eval")
ID_BYTES = 16
# The sentence splitter takes time that grows faster than the text (Chinese: with its square): it gets pieces.
SPLITTER_CHARACTERS = 4096


def bucket_counts(total_bytes: int, settings: CorpusSettings) -> dict[str, int]:
    """How many shards each split gets."""
    shares = {"train": 1.0 - settings.eval_fraction, "eval": settings.eval_fraction}
    return {split: max(1, math.ceil(total_bytes * shares[split] / settings.bucket_bytes)) for split in SPLITS}


def split_documents(lines: Iterable[str], settings: CorpusSettings) -> Iterator[list[str]]:
    """Groups lines into documents; lines are stripped, blank ones dropped."""
    document: list[str] = []
    for line in lines:
        line = line.strip()
        if line:
            document.append(line)
        elif document and settings.documents == "blank_lines":
            yield document
            document = []
    if document:
        yield document


def segment(lines: list[str], settings: CorpusSettings) -> list[str]:
    """The segments of one document: its lines, or its sentences."""
    if settings.segments == "lines":
        return lines
    from sentencex import segment as split

    text, start = " ".join(lines), 0
    segments: list[str] = []
    while len(text) - start > SPLITTER_CHARACTERS:
        piece = text[start : start + SPLITTER_CHARACTERS]
        sentences = list(split(settings.language, piece))
        if len(sentences) > 1:
            # The last one may go on in the next piece.
            sentences.pop()
        else:
            # One with no end in sight is cut at a blank.
            sentences = [piece[: piece.rfind(" ", 1) + 1 or len(piece)]]
        segments += sentences
        start += sum(map(len, sentences))
    segments += split(settings.language, text[start:])
    return [s for s in (s.strip() for s in segments) if s]


def document_id(segments: list[str]) -> bytes:
    """A hash of the content; the same text has the same id wherever it was found."""
    return hashlib.sha256("\n".join(segments).encode()).digest()[:ID_BYTES]


def split_and_bucket(identity: bytes, settings: CorpusSettings, buckets: dict[str, int]) -> tuple[str, int]:
    """Which split and bucket a document belongs to; independent bits of the id decide."""
    split = "eval" if int.from_bytes(identity[:4], "big") < settings.eval_fraction * 2**32 else "train"
    return split, int.from_bytes(identity[4:12], "big") % buckets[split]


class ReadDocuments(beam.DoFn):
    """path -> ((split, bucket), (document_id, source, segments)) for every document of the file."""

    def __init__(self, settings: CorpusSettings, buckets: dict[str, int]):
        self.settings, self.buckets = settings, buckets

    def process(self, path: str):
        try:
            with open_input(path) as file:
                # A byte that is no UTF-8 becomes U+FFFD, which the tokenizer drops, as the original does.
                text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace")
                for lines in split_documents(text, self.settings):
                    segments = segment(lines, self.settings)
                    if segments:
                        identity = document_id(segments)
                        yield split_and_bucket(identity, self.settings, self.buckets), (identity, path, segments)
        except READ_ERRORS as error:
            raise cannot_be_read(path, error) from error


class WriteDocuments(beam.DoFn):
    """((split, bucket), documents) -> the shard's file; yields (split, counts)."""

    def __init__(self, output_dir: str, buckets: dict[str, int]):
        self.output_dir, self.buckets = output_dir, buckets

    def process(self, element):
        (split, bucket), documents = element
        unique: dict[bytes, tuple[str, list[str]]] = {}
        found = 0
        for identity, source, segments in sorted(documents):
            found += 1
            unique.setdefault(identity, (source, segments))
        name = shard_name("documents", bucket, self.buckets[split])
        write_shard(f"{self.output_dir}/Split-{split}/{name}", map(_serialize, unique.items()))
        kept = [segments for _, segments in unique.values()]
        yield (
            split,
            {
                "documents": len(kept),
                "duplicates": found - len(kept),
                "segments": sum(map(len, kept)),
                "bytes": sum(len(s.encode()) for segments in kept for s in segments),
            },
        )


def _serialize(item: tuple[bytes, tuple[str, list[str]]]) -> bytes:
    identity, (source, segments) = item
    values = {"document_id": [identity], "source": [source.encode()], "segments": [s.encode() for s in segments]}
    features = {k: tf.train.Feature(bytes_list=tf.train.BytesList(value=v)) for k, v in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString(deterministic=True)


class MakeDocuments(beam.PTransform):
    """paths -> (split, counts) of every shard written; every bucket gets a shard, if an empty one."""

    def __init__(self, settings: CorpusSettings, buckets: dict[str, int], output_dir: str):
        super().__init__()
        self.settings, self.buckets, self.output_dir = settings, buckets, output_dir

    def expand(self, paths):
        every_bucket = paths.pipeline | "Buckets" >> beam.Create(
            [(split, bucket) for split in SPLITS for bucket in range(self.buckets[split])]
        )
        documents = (
            paths
            | "SpreadFiles" >> beam.Reshuffle()
            | "ReadDocuments" >> beam.ParDo(ReadDocuments(self.settings, self.buckets))
        )
        empty = every_bucket | "NoDocuments" >> beam.Map(lambda key: (key, None))
        return (
            (documents, empty)
            | "WithEmptyBuckets" >> beam.Flatten()
            | "ByBucket" >> beam.GroupByKey()
            | "DropNone" >> beam.MapTuple(lambda key, values: (key, [v for v in values if v is not None]))
            | "WriteDocuments" >> beam.ParDo(WriteDocuments(self.output_dir, self.buckets))
        )
