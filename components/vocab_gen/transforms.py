"""Document shards -> word counts -> `vocab.txt` and `vocab_spec.json`, as Beam transforms (no TFX here)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable

import apache_beam as beam
import tensorflow as tf

from bert_keras.features import VOCABULARY_FILE, VOCABULARY_SPEC_FILE
from bert_keras.tokenizer import basic_tokenize
from bert_keras.unicode_tables import UNICODE_VERSION
from components.shards import read_documents, write_json
from components.vocab_gen.learn import learn_wordpiece
from components.vocab_gen.settings import VocabularySettings


class CountWords(beam.DoFn):
    """path of a documents shard -> (word, count), each word once."""

    def __init__(self, lower_case: bool):
        self.lower_case = lower_case

    def process(self, path: str):
        counts: Counter[str] = Counter()
        for segments in read_documents(path):
            # No word reaches across a line end.
            counts.update(basic_tokenize("\n".join(segments), self.lower_case))
        yield from counts.items()


class LearnVocabulary(beam.DoFn):
    """All (word, count) pairs -> the two files."""

    def __init__(self, output_dir: str, vocab_size: int, settings: VocabularySettings):
        self.output_dir, self.vocab_size, self.settings = output_dir, vocab_size, settings

    def process(self, element: tuple[None, Iterable[tuple[str, int]]]):
        _, pairs = element
        counts = dict(pairs)
        vocabulary = learn_wordpiece(counts, self.vocab_size, self.settings)
        content = "".join(token + "\n" for token in vocabulary).encode()
        with tf.io.gfile.GFile(f"{self.output_dir}/{VOCABULARY_FILE}", "wb") as file:
            file.write(content)
        write_json(
            f"{self.output_dir}/{VOCABULARY_SPEC_FILE}",
            {
                "algorithm": "wordpiece",
                **dataclasses.asdict(self.settings),
                "normalization": "NFD, marks stripped" if self.settings.lower_case else "none",
                "unicode_version": UNICODE_VERSION,
                "vocab_size": len(vocabulary),
                "vocabulary_sha256": hashlib.sha256(content).hexdigest(),
                "words": sum(counts.values()),
                "distinct_words": len(counts),
            },
        )


class MakeVocabulary(beam.PTransform):
    """paths of document shards -> `vocab.txt` and `vocab_spec.json` in `output_dir`.

    Memory: distinct words of one shard, and in one place all those seen at least `min_word_count` times.
    """

    def __init__(self, output_dir: str, vocab_size: int, settings: VocabularySettings):
        super().__init__()
        self.output_dir, self.vocab_size, self.settings = output_dir, vocab_size, settings

    def expand(self, paths):
        floor = self.settings.min_word_count
        nothing = paths.pipeline | "AtLeastNone" >> beam.Create([("", 0)])
        words = (
            paths
            | "SpreadShards" >> beam.Reshuffle()
            | "CountWords" >> beam.ParDo(CountWords(self.settings.lower_case))
            | "SumCounts" >> beam.CombinePerKey(sum)
            | "Floor" >> beam.Filter(lambda pair: pair[1] >= floor)
        )
        return (
            (words, nothing)
            | "WithNone" >> beam.Flatten()
            | "Together" >> beam.GroupBy(lambda pair: None)
            | "DropNone" >> beam.MapTuple(lambda key, pairs: (key, [p for p in pairs if p[1]]))
            | "Learn" >> beam.ParDo(LearnVocabulary(self.output_dir, self.vocab_size, self.settings))
        )
