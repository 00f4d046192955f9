"""Beam transforms that count words in document shards and learn a vocabulary (no TFX here)."""

from __future__ import annotations  # Beam would take them for its types

import glob
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from bert_keras.tokenizers import byte_bpe
from bert_keras.tokenizers.normalize import split_words
from bert_keras.tokenizers.sentencepiece import precompiled
from bert_keras.tokenizers.vocabulary_files import format_fields
from bert_keras.tokenizers.wordpiece import BertTokenizer
from components.io.shards import matching, read_documents
from components.vocab_gen.files import write_vocabulary
from components.vocab_gen.learn import (
    add_words,
    learn_byte_bpe,
    learn_sentencepiece,
    learn_wordpiece,
    least_count,
    sample,
)
from components.vocab_gen.settings import VocabularySettings

# Words that a worker holds before emitting their counts: some hundred megabytes.
MAX_DISTINCT_WORDS = 2_000_000
# Bytes of words of byte-level BPE, each with its count, that shards emit.
MAX_BYTES_EMITTED = 64_000_000
# Of a word of weighted sources: counts are whole numbers, whose sum does not depend on the order.
_PARTS_OF_A_COUNT = 100


class CountWords(beam.DoFn):
    """Path of a document shard -> (word, count) pairs; a word comes once per bundle, or more often with many words.

    With `rates` of the sources (`bert_keras.data.mixture.source_rates`) counts are multiplied by them, and are in
    hundredths. Words of byte-level BPE and SentencePiece may all be different, as the clauses of a Chinese text: of
    each shard's counts a sample (`learn.sample`) with this threshold is emitted.
    """

    def __init__(self, settings: VocabularySettings, rates: Mapping[str, float] | None = None):
        self.settings, self.rates = settings, rates or {}

    def start_bundle(self) -> None:
        self._counts: Counter[str] = Counter()

    def process(self, path: str, threshold: int = 1) -> Iterator[tuple[str, int]]:
        segments = (segment for document in read_documents(path) for segment in document)
        counts: Counter[str] = Counter()
        if self.settings.algorithm == "byte_bpe":
            counts.update(byte_bpe.words(segments))
        elif self.settings.algorithm == "sentencepiece":
            counts.update(word for segment in segments for word in segment.split())
        else:
            threshold = 1
            for words in split_words(segments, **self.settings.normalization.fields):
                counts.update(words)
        if self.rates:
            times, threshold = round(_rate(self.rates, path) * _PARTS_OF_A_COUNT), threshold * _PARTS_OF_A_COUNT
            counts = Counter({word: count * times for word, count in counts.items()})
        self._counts.update(dict(sample(counts, threshold, posixpath.basename(path))))
        if len(self._counts) > MAX_DISTINCT_WORDS:
            yield from self._counts.items()
            self._counts.clear()

    def finish_bundle(self):
        yield from map(GlobalWindows.windowed_value, self._counts.items())
        self._counts.clear()


def _learned(
    element: tuple[None, Iterable[tuple[str, int]]],
    least: int,
    output_dir: str,
    vocab_size: int,
    settings: VocabularySettings,
    exact: bool,
    initial: BertTokenizer | None,
) -> int:
    """Write the files from all (word, count) pairs; `least`: their minimum count. Returns the vocabulary's size."""
    counts = {word: count for word, count in element[1] if count}
    source, merges, model = "learned", list[tuple[str, str]](), None
    facts: dict[str, Any] = {"words": sum(counts.values()), "distinct_words": len(counts), "min_word_count": least}
    if initial:
        source = "extended"
        vocabulary, rates = add_words(counts, initial, settings)
        facts |= {**format_fields(initial), **rates}
    elif settings.algorithm == "byte_bpe":
        vocabulary, merges = learn_byte_bpe(counts, vocab_size, settings, exact=exact)
    elif settings.algorithm == "sentencepiece":
        model = learn_sentencepiece(counts, vocab_size, settings, exact=exact)
        vocabulary = [piece for piece, _ in precompiled(model)[0]]
    else:
        vocabulary = learn_wordpiece(counts, vocab_size, settings, exact=exact)
    write_vocabulary(output_dir, vocabulary, merges, settings, model, source=source, **facts)
    return len(vocabulary)


def _rate(rates: Mapping[str, float], path: str) -> float:
    """The rate of the source of a shard, whose name ends with it (`components.io.shards.shard_name`)."""
    return rates.get(path.removesuffix(".tfrecord").rpartition("-")[2], 1.0)


def _size(path: str, rates: Mapping[str, float]) -> int:
    return round(matching(glob.escape(path))[0].size_in_bytes * _rate(rates, path))


@beam.ptransform_fn
def MakeVocabulary(
    paths,
    output_dir: str,
    vocab_size: int,
    settings: VocabularySettings,
    *,
    exact: bool,
    initial: BertTokenizer | None = None,
    rates: Mapping[str, float] | None = None,
):
    """Paths of document shards -> files of the vocabulary in `output_dir`, and its size.

    Memory: the distinct words of a worker's shards, and in one place all words with the `least_count`: as many for 3e9
    words as for 3e11, since the minimum grows with the text. Byte-level BPE learns from a sample of rare words instead.

    `exact`: fewer tokens than `vocab_size`, which includes special ones, are an `InputError`. An `initial` tokenizer
    gets `settings.extend` words; None: learn a vocabulary. With `rates` the words of a source count so many times.
    """
    rates = rates or {}
    nothing = paths.pipeline | "AtLeastNone" >> beam.Create([("", 0)])
    size = paths | "Sizes" >> beam.Map(_size, rates) | "Size" >> beam.CombineGlobally(sum)
    threshold = beam.pvalue.AsSingleton(size | "Threshold" >> beam.Map(lambda size: -(-size // MAX_BYTES_EMITTED)))
    spread = paths | "SpreadShards" >> beam.Reshuffle()
    counts = spread | "CountWords" >> beam.ParDo(CountWords(settings, rates), threshold)
    # The total needs no shuffle, so rare words can be dropped before the counts are summed.
    parts = _PARTS_OF_A_COUNT if rates else 1
    total = counts | "Counts" >> beam.Values() | "Total" >> beam.CombineGlobally(sum)
    least = beam.pvalue.AsSingleton(total | "LeastCount" >> beam.Map(lambda n: least_count(n, settings, parts)))
    words = (
        counts
        | "SumCounts" >> beam.CombinePerKey(sum)
        | "WholeCounts" >> beam.MapTuple(lambda word, count: (word, count // parts))
        | "Floor" >> beam.Filter(lambda pair, least: pair[1] >= least, least)
    )
    return (
        (words, nothing)
        | "WithNone" >> beam.Flatten()
        | "Together" >> beam.GroupBy(lambda pair: None)
        | "Learn" >> beam.Map(_learned, least, output_dir, vocab_size, settings, exact, initial)
    )
