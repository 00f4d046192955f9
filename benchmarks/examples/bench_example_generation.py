"""Benchmark of `bert-tfx examples`: speed, memory and reproducibility.

    .venv/bin/python -m benchmarks.examples.bench_example_generation --work /tmp/bench  # everything: about 25 minutes
    .venv/bin/python -m benchmarks.examples.bench_example_generation --work /tmp/bench speed peers

Every figure is measured on the real command in its own process: CPU seconds and peak resident memory of it and its
workers, imports included, as counted by the kernel. The text is the docstrings of the installed libraries, one
sentence per line, repeated as needed; each copy of a document has a distinguishing line, so that nothing is dropped
as a duplicate.

The floor, for one instance of length 128 (two segments of 60 tokens, 20 masks), at dupe 5 and 1.5 passes' overlap:

    read and tokenize       500 bytes of text / 7.5 uses of each              70 bytes at 15 MB/s      4.5 us
    planned, filled, masked 128 ids, 20 choices from about 120 candidates     NumPy, some 30 passes    3.5 us
    encoded and written     700 bytes of protocol buffer and two checksums    at 250 MB/s              2.8 us

that is 11 us or 90,000 instances per core-second for arrays in one process; the measured excess is the gap.

Experiments (default: all):
    speed      instances per core-second from text to TFRecords: length 128 and 512, vocabulary given and learned
    peers      the same text through the original's script (a part of it: it is slow), and its tokenizer against ours
    workers    two worker processes against one
    memory     peak resident memory from 10 MB to 1 GB of text and from dupe 1 to dupe 10
    costs      CPU seconds and bytes per megabyte of text, by stage: the inputs of scaling_model.py
    buckets    peak resident memory against corpus.bucket_bytes
    same       sha256 of all shards for 1 and 2 workers, in memory and in processes, this Python and --other-python
               (an environment with Beam and this package's other small libraries; no TensorFlow or TFX is needed)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.examples.example_generation_baselines import (
    ORIGINAL,
    TOKENIZERS,
    install_original,
    run_original,
    time_tokenizer,
)
from benchmarks.harness.resource_usage import Usage, measure
from pipeline.examples.demo_corpus import write_docstring_corpus

ROOT = Path(__file__).parents[2]

SPEED_MEGABYTES = 60
WORKERS_MEGABYTES = 1000
PEER_MEGABYTES = 5
VOCAB_SIZE = 30_522
ONE_WORKER = ("--direct_num_workers=1", "--direct_running_mode=in_memory")
TWO_WORKERS = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")


@dataclasses.dataclass
class Run:
    """One command: its JSON output, and the resources of it and its workers."""

    figures: dict
    usage: Usage


class Bench:
    """The text, the vocabulary and the results of one call."""

    def __init__(self, work: Path, other_python: Path | None):
        self.work, self.other_python = work, other_python
        self.rows: list[dict] = []
        self._console = Console(stderr=True)

    def text(self, megabytes: int) -> Path:
        """Docstrings, one sentence per line, of about this size."""
        path = self.work / f"docstrings-{megabytes}MB.txt"
        if not path.exists():
            self._console.print(f"writing {megabytes} MB of text")
            part = path.with_suffix(".part")
            with part.open("w", encoding="utf-8") as file:
                left = megabytes * 1_000_000
                for document in self._documents():
                    left -= len(document.encode())
                    file.write(document)
                    if left <= 0:
                        break
            part.rename(path)
        return path

    def _documents(self) -> Iterator[str]:
        from sentencex import segment

        source = self.work / "docstrings.txt"
        write_docstring_corpus(str(source), 10**12)
        documents = source.read_text(encoding="utf-8").split("\n\n")
        sentences = ["\n".join(s.strip() for s in segment("en", d.replace("\n", " "))) for d in documents]
        copy = 0
        while True:
            for document in filter(None, sentences):
                yield f"{document}\nThis is copy number {copy}.\n\n" if copy else f"{document}\n\n"
            copy += 1

    def vocabulary(self) -> Path:
        """A vocabulary of BERT's size, learned once from the text of the speed runs."""
        path = self.work / "vocab.txt"
        if not path.exists():
            run = self.examples(self.text(SPEED_MEGABYTES), dupe=1, keep=True, vocab=False)
            shutil.copy(Path(run.figures["output"]) / "vocab.txt", path)
        return path

    def examples(
        self,
        text: Path,
        *,
        length: int = 128,
        dupe: int = 5,
        vocab: bool = True,
        segments: str = "lines",
        keep: bool = False,
        python: str = sys.executable,
        words: tuple[str, ...] = ("--", *ONE_WORKER),
    ) -> Run:
        """Run `bert-tfx examples` on text with one sentence per line."""
        vocabulary = ["--vocab", str(self.vocabulary())] if vocab else ["--vocab-size", str(VOCAB_SIZE)]
        output = self.work / "examples"
        shutil.rmtree(output, ignore_errors=True)
        command = [python, "-c", "from pipeline.cli import main; main()", "examples", "--corpus", str(text)]
        command += ["--output", str(output), "--segments", segments, "--max-seq-length", str(length)]
        run = _run([*command, "--dupe-factor", str(dupe), *vocabulary, *words])
        if not keep:
            shutil.rmtree(output)
        return run

    def add(self, experiment: str, what: str, run: Run, **more: object) -> None:
        """Store and print a result."""
        row = {
            "experiment": experiment,
            "what": what,
            "instances": run.figures["instances"],
            "instances_per_core_second": round(run.figures["instances"] / run.usage.cpu_seconds),
            "wall_seconds": round(run.usage.wall_seconds, 1),
            "cpu_seconds": round(run.usage.cpu_seconds, 1),
            "peak_megabytes": round(run.usage.peak_bytes / 1e6),
            "seconds_by_stage": run.figures.get("seconds_by_stage", {}),
            **more,
        }
        self.show(row)

    def show(self, row: dict) -> None:
        """Store and print a result in row form."""
        self.rows.append(row)
        self._console.print(row)


def _run(command: list[str]) -> Run:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        usage = measure(command, stdout=output, stderr=errors, cwd=ROOT)
        output.seek(0), errors.seek(0)
        if usage.code:
            raise SystemExit(f"{' '.join(command)}: failed\n{errors.read()[-3000:]}")
        return Run(json.loads(output.read().splitlines()[-1]), usage)


def speed(bench: Bench) -> None:
    """Text to finished TFRecords."""
    text = bench.text(SPEED_MEGABYTES)
    for max_seq_length in (128, 512):
        run = bench.examples(text, length=max_seq_length)
        bench.add("speed", f"length {max_seq_length}, dupe 5, vocabulary given", run)
    bench.add("speed", "length 128, dupe 5, vocabulary learned", bench.examples(text, vocab=False))


def peers(bench: Bench) -> None:
    """The original's script on the first megabytes of the same text, all tokenizers on all of it; one vocabulary."""
    original = bench.work / "original"
    install_original(original)
    text, vocabulary = bench.text(PEER_MEGABYTES), bench.vocabulary()
    instances, usage = run_original(text, vocabulary, bench.work / "original.tfrecord", original)
    run = Run({"instances": instances}, usage)
    bench.add("peers", f"the original, {PEER_MEGABYTES} MB, length 128, dupe 5", run)
    text = bench.text(SPEED_MEGABYTES)
    megabytes = text.stat().st_size / 1e6
    timed = {
        name: megabytes / time_tokenizer(name, text, vocabulary, original, lower_case=True).cpu_seconds
        for name in TOKENIZERS
    }
    for name, speed in timed.items():
        row = {"experiment": "peers", "what": f"tokenizing, {name}", "megabytes_per_core_second": round(speed, 2)}
        bench.show(row | {"times_the_original": round(speed / timed[ORIGINAL], 1)})


def workers(bench: Bench) -> None:
    """Two worker processes against one, on much text, because starting and stopping takes four seconds per stage."""
    text = bench.text(WORKERS_MEGABYTES)
    one, two = bench.examples(text), bench.examples(text, words=("--", *TWO_WORKERS))
    bench.add("workers", "1 process", one)
    bench.add("workers", "2 processes", two, speed_up=round(one.usage.wall_seconds / two.usage.wall_seconds, 2))


def same(bench: Bench) -> None:
    """Equal bytes for any number of workers; different bytes for another seed."""
    text = bench.text(10)
    bench.vocabulary()
    for what, python, more in (
        ("1 worker in memory", sys.executable, ("--", *ONE_WORKER)),
        (
            "2 workers in threads",
            sys.executable,
            ("--", "--direct_num_workers=2", "--direct_running_mode=multi_threading"),
        ),
        ("2 workers in processes", sys.executable, ("--", *TWO_WORKERS)),
        ("BundleBasedDirectRunner", sys.executable, ("--", "--runner=BundleBasedDirectRunner")),
        *((("another Python", str(bench.other_python), ()),) if bench.other_python else ()),
        ("another seed", sys.executable, ("--seed", "1")),
    ):
        run = bench.examples(text, python=python, words=more, keep=True)
        digest = hashlib.sha256()
        for path in sorted((bench.work / "examples").glob("Split-*/*")):
            digest.update(path.name.encode() + path.read_bytes())
        bench.add("same", what, run, sha256=digest.hexdigest()[:16])


def memory(bench: Bench) -> None:
    """Peak resident memory against the size of the corpus and the number of passes."""
    small = bench.examples(bench.text(10), dupe=1)
    bench.add("memory", "10 MB, dupe 1", small)
    for megabytes, dupe_factor in ((100, 1), (1000, 1), (10, 10), (100, 10)):
        run = bench.examples(bench.text(megabytes), dupe=dupe_factor)
        growth = round(run.usage.peak_bytes / small.usage.peak_bytes - 1, 3)
        bench.add("memory", f"{megabytes} MB, dupe {dupe_factor}", run, growth=growth)


def costs(bench: Bench) -> None:
    """Costs per megabyte of text without start-up: each cost is a difference of two whole runs."""
    large, small = bench.text(SPEED_MEGABYTES), bench.text(1)
    megabytes = (large.stat().st_size - small.stat().st_size) / 1e6

    def more(**settings) -> tuple[float, float]:
        """CPU seconds and instances added per megabyte."""
        runs = [bench.examples(text, **settings) for text in (large, small)]
        cpu, instances = ([r.usage.cpu_seconds for r in runs], [r.figures["instances"] for r in runs])
        return (cpu[0] - cpu[1]) / megabytes, (instances[0] - instances[1]) / megabytes

    once, _ = more(dupe=1)
    for length in (128, 512):
        five, instances = more(dupe=5, length=length)
        one = more(dupe=1, length=512)[0] if length == 512 else once
        row = {"cpu_seconds": round((five - one) / 4, 4), "instances": round(instances / 5)}
        bench.show({"experiment": "costs", "what": f"a pass at {length}"} | row)
        if length == 128:
            bench.show({"experiment": "costs", "what": "documents", "cpu_seconds": round(once - (five - one) / 4, 4)})
    for what, settings in (("sentences", {"segments": "sentences"}), ("vocabulary", {"vocab": False})):
        row = {"cpu_seconds": round(more(dupe=1, **settings)[0] - once, 4)}
        bench.show({"experiment": "costs", "what": what} | row)


def buckets(bench: Bench) -> None:
    """Peak resident memory of the process against `corpus.bucket_bytes`."""
    text = bench.text(100)
    for bucket_bytes in (4 << 20, 16 << 20, 64 << 20):
        words = ("--set", f"corpus.bucket_bytes={bucket_bytes}", "--", *ONE_WORKER)
        bench.add("buckets", f"{bucket_bytes >> 20} MiB", bench.examples(text, dupe=1, words=words))


EXPERIMENTS: dict[str, Callable[[Bench], None]] = {
    f.__name__: f for f in (speed, peers, workers, memory, same, costs, buckets)
}


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[EXPERIMENT]...", help="All, if none is named.")] = None,
    work: Annotated[Path, typer.Option(help="A folder for text and shards (15 GB), outside the checkout.")] = Path(),
    other_python: Annotated[Path | None, typer.Option(help="Another interpreter, for `same`.")] = None,
) -> None:
    """Measure `bert-tfx examples`; print a table and a line of JSON."""
    work.mkdir(parents=True, exist_ok=True)
    bench = Bench(work.resolve(), other_python)
    for name in names or EXPERIMENTS:
        EXPERIMENTS[name](bench)
    table = Table("experiment", "what", "instances", "a core-second", "wall s", "CPU s", "peak MB", "more")
    columns = (
        "experiment",
        "what",
        "instances",
        "instances_per_core_second",
        "wall_seconds",
        "cpu_seconds",
        "peak_megabytes",
    )
    for row in bench.rows:
        more = {k: v for k, v in row.items() if k not in (*columns, "seconds_by_stage")}
        table.add_row(*(str(row.get(column, "")) for column in columns), ", ".join(f"{k} {v}" for k, v in more.items()))
    Console(width=160).print(table)
    print(json.dumps({"python": sys.version.split()[0], "cpus": os.cpu_count(), "rows": bench.rows}))


if __name__ == "__main__":
    typer.run(main)
