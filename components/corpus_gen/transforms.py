"""Beam transforms from text files to shards of documents (no TFX here: workers need only Beam and this package).

A document is one tf.Example: `document_id` bytes[1] (a hash of its content), `segments` bytes[n] (its sentences, in
order), `source` bytes[1] (its file) and, of sources that have names, `source_name` bytes[1]. The id determines the
split and, within it, the bucket, so the shards do not depend on the order of reading, the runner or the number of
workers. If a document occurs twice, the source that is first by name is kept.

A run that continues another leaves out the documents that it and those before it have read. READ_FILE has their ids,
sorted: 8 bytes of each, so that a worker holds 100 million in 800 MB.

Documents do not pass through Beam, whose local runners shuffle in memory: readers write them to sorted runs, and bucket
writers read their range of each run (`components.corpus_gen.sorted_runs`). Beam transports names and counts.
"""

from __future__ import annotations  # Beam would take them for its types

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np

from bert_keras.data.tfrecord import Example, bytes_example
from components.corpus_gen.filters.chain import EMPTY, FilterChain
from components.corpus_gen.filters.passage_counts import FindRepeatedPassages, Tables
from components.corpus_gen.filters.passages import PASSAGES
from components.corpus_gen.near_duplicates import (
    FindNearDuplicates,
    read_dropped,
    run_documents,
    signature,
    write_bands,
)
from components.corpus_gen.plain_text import segment
from components.corpus_gen.readers import ReadUnit, read_unit, work_bytes
from components.corpus_gen.record.card import READ, RECORD, write_counts
from components.corpus_gen.record.tally import (
    DUPLICATE,
    FOUND,
    KEPT,
    NEAR_DUPLICATE,
    READ_BEFORE,
    DroppedFile,
    SourceNames,
    Tally,
)
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.sorted_runs import SPLITS, bucket_counts, hash_range, hash_slot, read_run, write_run
from components.io.shards import open_file, remove_folder, remove_temporary, shard_name, whole_file, write_shard

ID_BYTES = 16
# Ids of all documents that were read, also by the runs that this one continues; in the order of their bytes.
READ_FILE = "documents_read.u64"
_READ_ID = np.dtype(">u8")


def document_id(segments: list[str]) -> bytes:
    """Hash of the content; the same text has the same id whatever its source."""
    return hashlib.sha256("\n".join(segments).encode()).digest()[:ID_BYTES]


def read_ids(documents_dir: str | None) -> np.ndarray:
    """The sorted content of READ_FILE, `_READ_ID` [documents]; empty without a folder."""
    if documents_dir is None:
        return np.zeros(0, _READ_ID)
    with open_file(f"{documents_dir}/{READ_FILE}") as file:
        return np.frombuffer(file.read(), _READ_ID)


def _write_read_ids(of_buckets: list[bytes], earlier: str | None, output_dir: str) -> None:
    """Write READ_FILE from the ids of each bucket and those of an earlier run."""
    ids = np.unique(np.concatenate([read_ids(earlier), *(np.frombuffer(ids, _READ_ID) for ids in of_buckets)]))
    with whole_file(f"{output_dir}/{READ_FILE}", _runs_dir(output_dir)) as file:
        file.write(ids.astype(_READ_ID).tobytes())


class WriteRuns(beam.DoFn):
    """(number, [ReadUnit, ...]) -> sorted runs of their documents; yields each run's (path, {split: bytes}).

    Further outputs: COUNTS, (READ or FOUND, {name: count}); BANDS, the runs of `near_duplicates.write_bands`.
    """

    COUNTS, BANDS = "counts", "bands"

    def __init__(self, settings: CorpusSettings, names: SourceNames, output_dir: str, earlier: str | None = None):
        self.settings, self.names, self.output_dir, self.earlier = settings, names, output_dir, earlier

    def setup(self) -> None:
        self._filter = FilterChain(self.settings)
        # In the byte order of this machine: NumPy would convert all of them at each search.
        self._read = read_ids(self.earlier).astype(np.uint64)

    def process(self, element: tuple[int, list[ReadUnit]], repeated: Tables | None = None):
        number, units = element
        if repeated is not None and self._filter.passages is not None:
            self._filter.passages.start(repeated.of_unit(number))
        counts: dict[str, Counter[str]] = {name: Counter() for name in source_names([units])}
        found: Counter[str] = Counter()
        tally = _tally(self.settings, self.names, self.output_dir, f"{number:06d}")
        documents: list[tuple[int, bytes]] = []
        size, runs, max_size = 0, 0, work_bytes(self.settings)
        max_signatures = run_documents(self.settings.cleaning)
        signatures: list[tuple[bytes, bytes]] = []

        def write() -> Iterator[tuple[str, dict[str, int]] | beam.pvalue.TaggedOutput]:
            name = f"{number:06d}-{runs:06d}"
            if signatures:
                path = f"{_bands_dir(self.output_dir)}/{name}.bands"
                yield beam.pvalue.TaggedOutput(self.BANDS, write_bands(path, signatures, self.settings.cleaning))
            path = f"{_runs_dir(self.output_dir)}/{name}.run"
            yield path, write_run(path, documents)

        for name, source, segments in (read for unit in units for read in self._documents(unit, counts, found, tally)):
            identity = document_id(segments)
            if self._was_read(identity):
                counts[name][READ_BEFORE] += 1
                tally.add(READ_BEFORE, source, segments, name)
                continue
            record = serialize(identity, source, segments, name)
            documents.append((hash_slot(identity, self.settings.eval_fraction), record))
            size += len(record)
            if self.settings.cleaning.near_duplicates:
                signatures.append((identity, signature(segments, self.settings.cleaning)))
            if size >= max_size or len(signatures) >= max_signatures:
                yield from write()
                documents, signatures, size, runs = [], [], 0, runs + 1
        if documents:
            yield from write()
        for name, counted in counts.items():
            for key in _keys(READ, name):
                yield beam.pvalue.TaggedOutput(self.COUNTS, (key, dict(counted)))
        for key, totals in ((FOUND, found), (RECORD, tally.close())):
            if totals:
                yield beam.pvalue.TaggedOutput(self.COUNTS, (key, dict(totals)))

    def _was_read(self, identity: bytes) -> bool:
        key = np.uint64(int.from_bytes(identity[: _READ_ID.itemsize], "big"))
        place = np.searchsorted(self._read, key)
        return bool(place < len(self._read) and self._read[place] == key)

    def _documents(
        self, unit: ReadUnit, by_name: dict[str, Counter[str]], found: Counter[str], tally: Tally
    ) -> Iterator[tuple[str, str, list[str]]]:
        counts = by_name[unit.source_name]
        for source, read in read_unit(unit, self.settings, counts):
            in_document: Counter[str] = Counter()
            lines, rule = self._filter(read, in_document)
            if in_document:
                found.update(in_document)
                tally.add_found(in_document, source, unit.source_name)
            segments = [] if rule else segment(lines, self.settings)
            if segments:
                yield unit.source_name, source, segments
            else:
                counts[f"dropped_{rule or EMPTY}"] += 1
                tally.add(rule or EMPTY, source, read, unit.source_name)


class WriteBucket(beam.DoFn):
    """(split, bucket, buckets) -> a shard of each source; yields (split or RECORD, counts).

    A document of several sources is that of the first file by name. Further output: IDS, the beginnings of the
    documents' ids, those of near duplicates too.
    """

    IDS = "ids"

    def __init__(self, settings: CorpusSettings, names: SourceNames, output_dir: str):
        self.settings, self.names, self.output_dir = settings, names, output_dir

    def process(self, element: tuple[str, int, int], runs: list[str], to_drop: Sequence[str] = ()):
        split, bucket, buckets = element
        slots = hash_range(split, bucket, buckets)
        dropped = read_dropped(to_drop, *slots)
        fields = ("documents", "duplicates", "near_duplicates", "segments", "bytes")
        counts = {name: dict.fromkeys(fields, 0) for name in self.names.given}
        kept: dict[str, list[bytes]] = {name: [] for name in self.names.given}
        tally = _tally(self.settings, self.names, self.output_dir, f"{split}-{bucket:05d}-of-{buckets:05d}")
        documents: list[tuple[bytes, bytes, bytes]] = []
        for run in runs:
            for record in read_run(run, *slots):
                features = Example.FromString(record).features.feature
                (identity,), (source,) = (features[name].bytes_list.value for name in ("document_id", "source"))
                documents.append((identity, source, record))
        documents.sort()
        last = None
        for identity, source, record in documents:
            features = Example.FromString(record).features.feature
            name = features["source_name"].bytes_list.value[0].decode() if "source_name" in features else ""
            segments = [segment.decode() for segment in features["segments"].bytes_list.value]
            if identity in dropped:
                fate = NEAR_DUPLICATE
            elif identity == last:
                fate = DUPLICATE
            else:
                fate, last = KEPT, identity
            size = tally.add(fate, source.decode("utf-8", "surrogateescape"), segments, name)
            if fate == KEPT:
                counts[name]["documents"] += 1
                counts[name]["segments"] += len(segments)
                counts[name]["bytes"] += size
                kept[name].append(record)
            else:
                counts[name][fate] += 1
        ids = {identity[: _READ_ID.itemsize] for identity, _, _ in documents}
        yield beam.pvalue.TaggedOutput(self.IDS, b"".join(ids))
        for name, records in kept.items():
            shard = shard_name("documents", bucket, buckets, name)
            write_shard(f"{self.output_dir}/Split-{split}/{shard}", records)
            for key in _keys(split, name):
                yield key, counts[name]
        if of_all := tally.close():
            yield RECORD, of_all


def source_names(units: Iterable[list[ReadUnit]]) -> list[str]:
    """The names of the sources of `units`, sorted; [""] if they have none."""
    return sorted({unit.source_name for piece in units for unit in piece}) or [""]


def _keys(key: str, source_name: str) -> list[str]:
    """The keys of the counts of a split (or READ): that of all sources, and NAME/KEY for the source's own."""
    return [key, f"{source_name}/{key}"] if source_name else [key]


def serialize(identity: bytes, source: str, segments: list[str], source_name: str = "") -> bytes:
    """Serialize a document for a shard."""
    features = {"document_id": [identity], "source": [source.encode("utf-8", "surrogateescape")]}
    features |= {"source_name": [source_name.encode()]} if source_name else {}
    return bytes_example({**features, "segments": [segment.encode() for segment in segments]})


def _tally(settings: CorpusSettings, names: SourceNames, output_dir: str, name: str) -> Tally:
    return Tally(names, settings.count_languages, DroppedFile(settings, output_dir, name, _runs_dir(output_dir)))


def _add_up(numbers: Iterable[dict[Any, int]]) -> dict[Any, int]:
    total: Counter[Any] = Counter()
    for by_name in numbers:
        total.update(by_name)
    return dict(total)


def generate_documents(
    pipeline: beam.Pipeline,
    units: list[list[ReadUnit]],
    settings: CorpusSettings,
    output_dir: str,
    earlier: str | None = None,
) -> None:
    """Add the stages that make documents from `units` (`read_units`): shards, COUNTS_FILE, READ_FILE in `output_dir`.

    Every bucket gets a shard of each source, even if it is empty. Documents in READ_FILE of the folder `earlier` are
    left out. Call `remove_intermediate` after the pipeline has run.
    """
    names = SourceNames.of((unit.path for piece in units for unit in piece), source_names(units))
    numbered = pipeline | "Units" >> beam.Create(list(enumerate(units)), reshuffle=False)
    # Without it the units stay on the worker that listed them.
    spread = numbered | "SpreadUnits" >> beam.Reshuffle()
    side_inputs, counts = {}, []
    if settings.passages.unit != "none":
        tables, repeated = spread | "FindRepeatedPassages" >> FindRepeatedPassages(
            settings, f"{_runs_dir(output_dir)}/passages"
        )
        side_inputs["repeated"] = beam.pvalue.AsSingleton(tables)
        counts.append(repeated | "Repeated" >> beam.Map(lambda count: (FOUND, {PASSAGES: count})))
    writer = beam.ParDo(WriteRuns(settings, names, output_dir, earlier), **side_inputs)
    written = spread | "WriteRuns" >> writer.with_outputs(WriteRuns.COUNTS, WriteRuns.BANDS, main="runs")
    files = {"runs": beam.pvalue.AsList(written.runs | "Paths" >> beam.Map(lambda run: run[0]))}
    if settings.cleaning.near_duplicates:
        find = FindNearDuplicates(settings, _bands_dir(output_dir))
        files["to_drop"] = beam.pvalue.AsList(written[WriteRuns.BANDS] | "FindNearDuplicates" >> find)
    writer = beam.ParDo(WriteBucket(settings, names, output_dir), **files)
    shards = (
        written.runs
        | "Sizes" >> beam.Map(lambda run: run[1])
        | "AddUp" >> beam.CombineGlobally(_add_up)
        | "Buckets" >> beam.Map(lambda split_bytes: bucket_counts(split_bytes, settings))
        | "EveryBucket"
        >> beam.FlatMap(
            lambda counts: [(split, bucket, counts[split]) for split in SPLITS for bucket in range(counts[split])]
        )
        | "SpreadBuckets" >> beam.Reshuffle()
        | "WriteBucket" >> writer.with_outputs(WriteBucket.IDS, main="counts")
    )
    ids = shards[WriteBucket.IDS] | "AllIds" >> beam.combiners.ToList()
    _ = ids | "WriteIds" >> beam.Map(_write_read_ids, earlier, output_dir)
    _ = (
        [*counts, shards.counts, written[WriteRuns.COUNTS]]
        | "AllCounts" >> beam.Flatten()
        | "Sum" >> beam.CombinePerKey(_add_up)
        | "ToDict" >> beam.combiners.ToDict()
        | "WriteCounts" >> beam.Map(lambda counts: write_counts(counts, output_dir, settings))
    )


def remove_intermediate(output_dir: str) -> None:
    """Remove sorted runs and temporary files."""
    remove_temporary(output_dir, SPLITS)
    remove_folder(_runs_dir(output_dir))


def _runs_dir(output_dir: str) -> str:
    return f"{output_dir}/runs.part"


def _bands_dir(output_dir: str) -> str:
    return f"{_runs_dir(output_dir)}/bands"
