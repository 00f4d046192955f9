"""Finds the passages that many documents have, before documents are filtered, as a Beam pipeline.

The text is read twice: to hash its passages, and to filter it. 16 bytes a passage are written and read once, a fifth of
a text with lines of 80 bytes. To write the documents instead and read them again would move twice the text, and the
ids that order them are those of the filtered text. Memory is constant, and Beam transports names and counts:

    runs     the (passage, document) hashes of up to TABLE_PASSAGES passages that one worker has read, sorted
    tables   a partition of all passages, those with hashes in a range; it reads its range of each run and has, for
             each run, a range with those of the run's passages that are repeated, as `filters.passages.ROW`

The filter reads the documents of a run again, in the same order, with the run's range of each table.

64-bit hashes of 10 billion different passages have about 3 pairs of equal ones.
"""

from __future__ import annotations  # Beam would take them for its types

import dataclasses
from array import array
from collections import Counter
from collections.abc import Iterator

import apache_beam as beam
import numpy as np

from components.corpus_gen.filters import passages
from components.corpus_gen.filters.chain import FilterChain
from components.corpus_gen.filters.passages import ROW, find
from components.corpus_gen.readers import ReadUnit, read_unit
from components.corpus_gen.settings import CorpusSettings, PassageSettings
from components.corpus_gen.sorted_runs import partition_count, partition_range, read_rows, write_by_hash, write_rows

# Size of a partition of the hashes; sorting takes several times as much.
PARTITION_BYTES = 16 << 20
_PAIR = np.dtype([("passage", "<u8"), ("document", "<u8")])


@dataclasses.dataclass(frozen=True)
class Tables:
    """The runs and tables in a folder; runs of a unit of work are sorted in the order of its documents."""

    folder: str
    runs: tuple[str, ...]
    partitions: int

    def of_unit(self, number: int) -> Iterator[np.ndarray]:
        """Repeated passages of each run of a unit of work, arrays of ROW; each is read when it is asked for."""
        for index, name in enumerate(self.runs):
            if name.startswith(_run_name(number)):
                parts = [read_rows(self.table(i), index, index + 1, ROW) for i in range(self.partitions)]
                yield np.concatenate(parts)

    def run(self, index: int) -> str:
        """Path of a run."""
        return f"{self.folder}/{self.runs[index]}"

    def table(self, partition: int) -> str:
        """Path of a table."""
        return f"{self.folder}/{partition:05d}.table"


@beam.ptransform_fn
def FindRepeatedPassages(units, settings: CorpusSettings, folder: str):
    """(number, [ReadUnit, ...]) -> `Tables`, once all are written; and each table's number of repeated passages."""
    tables = (
        units
        | "HashPassages" >> beam.ParDo(HashPassages(settings, folder))
        | "AllRuns" >> beam.combiners.ToList()
        | "Tables" >> beam.Map(_tables, folder)
    )
    repeated = (
        tables
        | "EveryTable" >> beam.FlatMap(lambda tables: range(tables.partitions))
        | "SpreadTables" >> beam.Reshuffle()
        | "WriteTable" >> beam.Map(_write_table, beam.pvalue.AsSingleton(tables), settings.passages)
    )
    written = (
        repeated
        | "AllTables" >> beam.combiners.ToList()
        | "Written" >> beam.Map(lambda _, tables: tables, beam.pvalue.AsSingleton(tables))
    )
    return written, repeated


class HashPassages(beam.DoFn):
    """(number, [ReadUnit, ...]) -> runs with the hashes of their passages; yields each run's (name, rows)."""

    def __init__(self, settings: CorpusSettings, folder: str):
        self.settings, self.folder = settings, folder

    def setup(self) -> None:
        self._filter = FilterChain(self.settings, before=passages.Passages)
        self._passages = passages.Passages(self.settings)

    def process(self, element: tuple[int, list[ReadUnit]]):
        number, units = element
        runs, hashes, documents, lengths = 0, array("Q"), array("Q"), array("q")
        for lines in (lines for unit in units for _, lines in read_unit(unit, self.settings, Counter())):
            lines, rule = self._filter(lines, Counter())
            if rule:
                continue
            document, passage_hashes = self._passages.hashes(self._passages.units(lines))
            documents.append(int(document))
            lengths.append(len(passage_hashes))
            hashes.frombytes(passage_hashes.tobytes())
            if len(hashes) >= passages.TABLE_PASSAGES:
                yield self._write(_run_name(number, runs), hashes, documents, lengths)
                runs, hashes, documents, lengths = runs + 1, array("Q"), array("Q"), array("q")
        if hashes:
            yield self._write(_run_name(number, runs), hashes, documents, lengths)

    def _write(self, name: str, hashes: array, documents: array, lengths: array) -> tuple[str, int]:
        pairs = np.empty(len(hashes), _PAIR)
        pairs["passage"] = hashes
        pairs["document"] = np.repeat(np.asarray(documents), np.asarray(lengths))
        order, counts = _documents_of_passages(pairs)
        # Enough of each passage: the smallest documents of all are among the smallest of each run.
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        pairs = pairs[order[rank < _needed(self.settings.passages)]]
        write_by_hash(f"{self.folder}/{name}", pairs, pairs["passage"])
        return name, len(pairs)


def repeated_passages(pairs: np.ndarray, settings: PassageSettings) -> np.ndarray:
    """The repeated passages among (passage, document) pairs in any order: an array of ROW, sorted."""
    order, counts = _documents_of_passages(pairs)
    first = (np.cumsum(counts) - counts)[counts >= _needed(settings)]
    rows = np.empty(len(first), ROW)
    rows["passage"] = pairs["passage"][order[first]]
    rows["bound"] = pairs["document"][order[first + settings.keep]]
    return rows


def _needed(settings: PassageSettings) -> int:
    """Number of documents of a passage from which on it is dropped in some."""
    return max(settings.min_count, settings.keep + 1)


def _documents_of_passages(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order of pairs by passage and document, each once, and the number of documents of each passage."""
    order = np.lexsort((pairs["document"], pairs["passage"]))
    ordered, documents = pairs["passage"][order], pairs["document"][order]
    first = np.ones(len(order), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    new = first.copy()
    new[1:] |= documents[1:] != documents[:-1]
    return order[new], np.diff(np.flatnonzero(first[new]), append=np.count_nonzero(new))


def _run_name(number: int, run: int | None = None) -> str:
    return f"{number:06d}-" + (f"{run:06d}.hashes" if run is not None else "")


def _tables(runs: list[tuple[str, int]], folder: str) -> Tables:
    size = sum(pairs for _, pairs in runs) * _PAIR.itemsize
    return Tables(folder, tuple(sorted(name for name, _ in runs)), partition_count(size, PARTITION_BYTES))


def _write_table(partition: int, tables: Tables, settings: PassageSettings) -> int:
    """Write the table of a partition; returns the number of repeated passages."""
    first, last = partition_range(partition, tables.partitions)
    parts = [read_rows(tables.run(i), first, last, _PAIR) for i in range(len(tables.runs))]
    rows = repeated_passages(np.concatenate([np.empty(0, _PAIR), *parts]), settings)
    of_runs = [rows[np.unique(find(rows["passage"], part["passage"])[1])] for part in parts]
    ends = np.cumsum([0, *map(len, of_runs)])
    write_rows(tables.table(partition), np.concatenate([np.empty(0, ROW), *of_runs]), ends)
    return len(rows)
