"""Cost model of large corpora and long trainings: the tables of scaling.md, from measured costs and assumptions.

    .venv/bin/python -m benchmarks.examples.scaling_model

Every input is below, with its source. A megabyte is 10^6 bytes of plain text.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from bert_keras.training.flops import training_flops
from components.corpus_gen.readers import MAX_WORK_BYTES, work_bytes
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.sorted_runs import SLOTS_A_SPLIT
from pipeline.recipes.bert import bert_base, bert_large

# Measured: bench_example_generation.py costs, on a busy machine (CPU seconds a megabyte).
DOCUMENTS, VOCABULARY = 0.1765, 0.1198
PASS = {128: 0.0580, 512: 0.0757}
INSTANCES = {128: 3252, 512: 2171}  # a megabyte and pass, of docstrings: short documents
# Measured: memory of a worker process: imports, a sorted run and word counts, and a multiple of a bucket's text.
PROCESS_BYTES, BUCKET_FACTOR = 600 << 20, 25
# Measured: bench_example_generation.py workers. What two processes do of twice the work of one.
EFFICIENCY = 0.915
# Measured: bytes of a record in its shard.
RECORD_BYTES = {128: 757, 512: 1948}
# From the code: each range read of a run needs three requests: the object, its offsets, its records.
REQUESTS_A_RANGE = 3
# Read in the code: bytes that travel through Beam for a run (path and sizes) and for a bucket (its key and counts).
BYTES_A_RUN, BYTES_A_BUCKET = 300, 700
# Distinct words of n words, as in Reuters' news (Manning et al., Introduction to Information Retrieval, 5.1.1), 16
# bytes each; words of 6 bytes. Most that can travel is that of each shard apart.
HEAPS, WORD_BYTES, BYTES_A_WORD = (44, 0.49), 16, 6

# Assumed: seconds per request to object storage; list prices in US dollars, Iowa; check them before use.
REQUEST_SECONDS = 0.02
CORE_HOUR, GIGABYTE_HOUR, SHUFFLED_GIGABYTE = 0.056, 0.003557, 0.011
READ_REQUESTS, WRITE_REQUESTS, GIGABYTE_MONTH = 0.0004e-3, 0.005e-3, 0.020
CORES = 400

# Assumed: peak bfloat16 FLOP/s of a chip, and its price an hour.
CHIPS = {
    "TPU v2": (46e12, 1.13),
    "TPU v3": (123e12, 2.20),
    "TPU v5e": (197e12, 1.20),
    "A100": (312e12, 3.67),
    "H100": (989e12, 9.80),
}
UTILISATIONS = (0.2, 0.35, 0.5)
# The paper: base on 4 Cloud TPUs, 16 chips, in 4 days; large on 64 chips in 4 days.
PAPER_CHIP_HOURS = {"bert_base": 16 * 96, "bert_large": 64 * 96}


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A corpus and the settings of its example generation.

    Attributes:
        name: heading of its column.
        bucket_bytes: `corpus.bucket_bytes`.
        passes: `examples.dupe_factor`; 1 with dynamic masking.
        parts: number of commands, one after another.
    """

    name: str
    text_bytes: float
    bucket_bytes: int
    passes: int
    parts: int = 1


CORPORA = (
    Corpus("Books + Wikipedia, 3.3e9 words", 16e9, 32 << 20, 5),
    Corpus("RoBERTa's, 160 GB", 160e9, 64 << 20, 1),
    Corpus("web, 1 TB", 1e12, 256 << 20, 1),
    Corpus("web, 10 TB", 10e12, 640 << 20, 1),
    Corpus("web, 10 TB in 10 parts", 10e12, 256 << 20, 1, parts=10),
)


@dataclasses.dataclass(frozen=True)
class Generation:
    """Resources of the example generation of a corpus, at a sequence length."""

    corpus: Corpus
    length: int = 128

    @property
    def buckets(self) -> int:
        """Shards of a part."""
        return math.ceil(self.corpus.text_bytes / self.corpus.parts / self.corpus.bucket_bytes)

    @property
    def runs(self) -> int:
        """Sorted files of a part."""
        most = work_bytes(CorpusSettings(bucket_bytes=self.corpus.bucket_bytes))
        return math.ceil(self.corpus.text_bytes / self.corpus.parts / most)

    @property
    def requests(self) -> float:
        """Small reads of the sort: each bucket reads from each run."""
        return self.corpus.parts * self.buckets * self.runs * REQUESTS_A_RANGE

    def stages(self) -> dict[str, float]:
        """Core hours of each stage; `sort` is the time a process waits for storage."""
        megabytes = self.corpus.text_bytes / 1e6
        seconds = {
            "documents": DOCUMENTS * megabytes,
            "sort": self.requests * REQUEST_SECONDS,
            "vocabulary": VOCABULARY * megabytes,
            "examples": PASS[self.length] * megabytes * self.corpus.passes,
        }
        return {name: value / 3600 / EFFICIENCY for name, value in seconds.items()}

    @property
    def core_hours(self) -> float:
        return sum(self.stages().values())

    @property
    def instances(self) -> float:
        return INSTANCES[self.length] * self.corpus.text_bytes / 1e6 * self.corpus.passes

    @property
    def example_bytes(self) -> float:
        return self.instances * RECORD_BYTES[self.length]

    @property
    def shuffled_bytes(self) -> float:
        """Names, counts and mostly words: at most the words of each shard, counted separately."""
        factor, exponent = HEAPS
        words = factor * (self.corpus.bucket_bytes / BYTES_A_WORD) ** exponent * WORD_BYTES
        return self.corpus.parts * (self.runs * BYTES_A_RUN + self.buckets * (BYTES_A_BUCKET + words))

    @property
    def process_gigabytes(self) -> float:
        return (PROCESS_BYTES + BUCKET_FACTOR * self.corpus.bucket_bytes) / 1e9

    def dollars(self) -> dict[str, float]:
        """Dollars by resource."""
        files = self.corpus.parts * (self.runs + 3 * self.buckets)
        return {
            "workers": self.core_hours * (CORE_HOUR + GIGABYTE_HOUR * max(4.0, self.process_gigabytes)),
            "shuffle": self.shuffled_bytes / 1e9 * SHUFFLED_GIGABYTE,
            "requests": self.requests * READ_REQUESTS + files * WRITE_REQUESTS,
        }


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _bytes(value: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if value >= size:
            return f"{_number(value / size)} {unit}"
    return f"{_number(value / 1e6)} MB"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *map(list, rows))]
    return "\n".join(lines)


def generation_table() -> str:
    """Resources and costs of the examples of each corpus."""
    made = [Generation(corpus) for corpus in CORPORA]
    for each in made:
        assert each.buckets <= SLOTS_A_SPLIT, each.corpus.name
    rows = {
        "`corpus.bucket_bytes`": [f"{each.corpus.bucket_bytes >> 20} MiB" for each in made],
        "passes (`dupe_factor`)": [str(each.corpus.passes) for each in made],
        "shards": [_number(each.corpus.parts * each.buckets) for each in made],
        "examples of 128": [f"{each.instances / 1e6:,.0f} million" for each in made],
        "bytes of examples": [_bytes(each.example_bytes) for each in made],
        "core hours: documents": [_number(each.stages()["documents"]) for each in made],
        "- waiting for small reads": [_number(each.stages()["sort"]) for each in made],
        "- vocabulary": [_number(each.stages()["vocabulary"]) for each in made],
        "- examples": [_number(each.stages()["examples"]) for each in made],
        "**core hours**": [f"**{_number(each.core_hours)}**" for each in made],
        "- with length 512 instead": [_number(Generation(each.corpus, 512).core_hours) for each in made],
        f"hours on {CORES} cores": [_number(each.core_hours / CORES) for each in made],
        "small reads (requests)": [f"{each.requests / 1e6:,.1f} million" for each in made],
        "through Beam's shuffle, at most": [_bytes(each.shuffled_bytes) for each in made],
        "temporary files": [_bytes(2 * each.corpus.text_bytes / each.corpus.parts) for each in made],
        "memory a process": [_bytes(each.process_gigabytes * 1e9) for each in made],
        "**dollars**": [f"**{_number(sum(each.dollars().values()))}**" for each in made],
        "- workers": [_number(each.dollars()["workers"]) for each in made],
        "- requests": [_number(each.dollars()["requests"]) for each in made],
        "- shuffle": [_number(each.dollars()["shuffle"]) for each in made],
        "dollars a month for the examples": [_number(each.example_bytes / 1e9 * GIGABYTE_MONTH) for each in made],
    }
    return _table(["", *(corpus.name for corpus in CORPORA)], ([name, *cells] for name, cells in rows.items()))


def run_flops(recipe) -> float:
    """FLOPs of all steps of a recipe, both phases."""
    phases = recipe.example_sets
    long_steps = recipe.second_phase.num_train_steps
    steps = [recipe.training.num_train_steps - long_steps, long_steps]
    return sum(
        number
        * recipe.training.train_batch_size
        * training_flops(recipe.model, phase.max_seq_length, phase.masking.max_predictions_per_seq)
        for number, phase in zip(steps, phases, strict=True)
    )


def training_table() -> str:
    """Chip hours and dollars of the paper's models, for each chip and utilisation."""
    rows = []
    for recipe in (bert_base(), bert_large()):
        flops = run_flops(recipe)
        for chip, (peak, price) in CHIPS.items():
            hours = [flops / peak / share / 3600 for share in UTILISATIONS]
            cells = [f"{_number(each)} h, ${_number(each * price)}" for each in hours]
            rows.append([recipe.name, f"{flops:.2e}", chip, *cells])
    heads = [f"{share:.0%} of its peak" for share in UTILISATIONS]
    return _table(["recipe", "FLOPs", "chip", *heads], rows)


def paper_table() -> str:
    """The utilisation implied by the paper's chip hours, for the same steps."""
    rows = []
    for recipe in (bert_base(), bert_large()):
        hours, flops = PAPER_CHIP_HOURS[recipe.name], run_flops(recipe)
        shares = [f"{flops / (hours * 3600 * CHIPS[chip][0]):.0%}" for chip in ("TPU v2", "TPU v3")]
        rows.append([recipe.name, _number(hours), *shares])
    return _table(["recipe", "chip hours of the paper", "of TPU v2's peak", "of TPU v3's peak"], rows)


def pieces_table() -> str:
    """Work of a single worker: the minimum duration of a job."""
    pieces = {"32 MiB, most of a small bucket's piece of work": MAX_WORK_BYTES / 1e6, "a document of 2 GB": 2000}
    rows = [[what, f"{_number(DOCUMENTS * megabytes / 60)} minutes"] for what, megabytes in pieces.items()]
    return _table(["read by one worker", "time"], rows)


TABLES = (generation_table, pieces_table, training_table, paper_table)

if __name__ == "__main__":
    print("\n\n".join(table() for table in TABLES))
