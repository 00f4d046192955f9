"""Document shards -> word counts -> a vocabulary's files, as Beam transforms (no TFX here)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from bert_keras import byte_bpe
from bert_keras.tokenizer import split_words
from components.shards import read_documents
from components.vocab_gen.files import write_vocabulary
from components.vocab_gen.learn import learn_byte_bpe, learn_wordpiece
from components.vocab_gen.settings import VocabularySettings

# What a worker holds before it hands its counts on: some hundred megabytes.
MAX_DISTINCT_WORDS = 2_000_000


class CountWords(beam.DoFn):
    """path of a documents shard -> (word, count); a word comes once a bundle, or more often if there are very many."""

    def __init__(self, settings: VocabularySettings):
        self.settings = settings

    def start_bundle(self) -> None:
        self._counts: Counter[str] = Counter()

    def process(self, path: str) -> Iterator[tuple[str, int]]:
        segments = (segment for document in read_documents(path) for segment in document)
        if self.settings.algorithm == "byte_bpe":
            self._counts.update(byte_bpe.words(segments))
        else:
            for words in split_words(segments, self.settings.lower_case):
                self._counts.update(words)
        if len(self._counts) > MAX_DISTINCT_WORDS:
            yield from self._counts.items()
            self._counts.clear()

    def finish_bundle(self):
        yield from map(GlobalWindows.windowed_value, self._counts.items())
        self._counts.clear()


class LearnVocabulary(beam.DoFn):
    """All (word, count) pairs -> the files; yields the size of the vocabulary."""

    def __init__(self, output_dir: str, vocab_size: int, settings: VocabularySettings, exact: bool):
        self.output_dir, self.vocab_size, self.settings, self.exact = output_dir, vocab_size, settings, exact

    def process(self, element: tuple[None, Iterable[tuple[str, int]]]) -> Iterator[int]:
        _, pairs = element
        counts = dict(pairs)
        if self.settings.algorithm == "byte_bpe":
            vocabulary, merges = learn_byte_bpe(counts, self.vocab_size, self.settings, exact=self.exact)
        else:
            vocabulary, merges = learn_wordpiece(counts, self.vocab_size, self.settings, exact=self.exact), []
        write_vocabulary(
            self.output_dir,
            vocabulary,
            merges,
            self.settings,
            source="learned",
            words=sum(counts.values()),
            distinct_words=len(counts),
        )
        yield len(vocabulary)


class MakeVocabulary(beam.PTransform):
    """paths of document shards -> the vocabulary's files in `output_dir`, and its size.

    Memory: distinct words of a worker's shards, and in one place all those seen at least `min_word_count` times.

    Args:
        vocab_size: tokens, special ones included.
        exact: whether a corpus that supports fewer is an error (`InputError`), or gives a smaller vocabulary.
    """

    def __init__(self, output_dir: str, vocab_size: int, settings: VocabularySettings, *, exact: bool):
        super().__init__()
        self.output_dir, self.vocab_size, self.settings, self.exact = output_dir, vocab_size, settings, exact

    def expand(self, paths):
        floor = self.settings.min_word_count
        nothing = paths.pipeline | "AtLeastNone" >> beam.Create([("", 0)])
        words = (
            paths
            | "SpreadShards" >> beam.Reshuffle()
            | "CountWords" >> beam.ParDo(CountWords(self.settings))
            | "SumCounts" >> beam.CombinePerKey(sum)
            | "Floor" >> beam.Filter(lambda pair: pair[1] >= floor)
        )
        return (
            (words, nothing)
            | "WithNone" >> beam.Flatten()
            | "Together" >> beam.GroupBy(lambda pair: None)
            | "DropNone" >> beam.MapTuple(lambda key, pairs: (key, [p for p in pairs if p[1]]))
            | "Learn" >> beam.ParDo(LearnVocabulary(self.output_dir, self.vocab_size, self.settings, self.exact))
        )
