"""Benchmark of `bert-tfx examples`: speed and memory.

    .venv/bin/python -m benchmarks.examples.bench_example_generation --work /tmp/bench  # everything: about 25 minutes
    .venv/bin/python -m benchmarks.examples.bench_example_generation --work /tmp/bench speed

Every result is a line of JSON, measured on the real command in its own process: CPU seconds and peak resident memory of
it and its workers, imports included, as counted by the kernel. The text is the docstrings of the installed libraries,
one sentence per line, repeated as needed; each copy of a document has a distinguishing line, so that nothing is dropped
as a duplicate.

The floor, for one instance of length 128 (two segments of 60 tokens, 20 masks), at dupe 5 and 1.5 passes' overlap:

    read and tokenize       500 bytes of text / 7.5 uses of each              70 bytes at 15 MB/s      4.5 us
    planned, filled, masked 128 ids, 20 choices from about 120 candidates     NumPy, some 30 passes    3.5 us
    encoded and written     700 bytes of protocol buffer and two checksums    at 250 MB/s              2.8 us

that is 11 us or 90,000 instances per core-second for arrays in one process; the measured excess is the gap.

Experiments (default: all):
    speed      instances per core-second from text to TFRecords: length 128 and 512, vocabulary given and learned
    workers    two worker processes against one
    memory     peak resident memory from 10 MB to 1 GB of text and from dupe 1 to dupe 10
    costs      CPU seconds and bytes per megabyte of text, by stage: the inputs of scaling.md
    buckets    peak resident memory against corpus.bucket_bytes
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from pipeline.examples.demo_corpus import write_docstring_corpus

ROOT = Path(__file__).parents[2]
SPEED_MEGABYTES = 60
WORKERS_MEGABYTES = 1000
VOCAB_SIZE = 30_522
ONE_WORKER = ("--direct_num_workers=1", "--direct_running_mode=in_memory")
TWO_WORKERS = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
# A small process starts the command, because a child's peak includes its parent's memory at the start.
_STARTER = """
import json, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([code, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024], file)
"""


@dataclasses.dataclass
class Run:
    """One command: its JSON output, and the resources of it and its workers."""

    figures: dict
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int


class Bench:
    """The text and the vocabulary of one call, in the folder `work`."""

    def __init__(self, work: Path):
        self.work = work

    def text(self, megabytes: int) -> Path:
        """Docstrings, one sentence per line, of about this size."""
        path = self.work / f"docstrings-{megabytes}MB.txt"
        if not path.exists():
            print(f"writing {megabytes} MB of text", file=sys.stderr)
            part = path.with_suffix(".part")
            with part.open("w", encoding="utf-8") as file:
                missing = megabytes * 1_000_000
                for document in self._documents():
                    missing -= len(document.encode())
                    file.write(document)
                    if missing <= 0:
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
        words: tuple[str, ...] = ("--", *ONE_WORKER),
    ) -> Run:
        """Run `bert-tfx examples` on text with one sentence per line."""
        vocabulary = ["--vocab", str(self.vocabulary())] if vocab else ["--vocab-size", str(VOCAB_SIZE)]
        output = self.work / "examples"
        shutil.rmtree(output, ignore_errors=True)
        command = [sys.executable, "-c", "from pipeline.cli import main; main()", "examples", "--corpus", str(text)]
        command += ["--output", str(output), "--set", f"corpus.segments={segments}"]
        command += ["--set", f"examples.max_seq_length={length}", "--set", f"examples.dupe_factor={dupe}"]
        run = _run([*command, *vocabulary, *words])
        if not keep:
            shutil.rmtree(output)
        return run


def _run(command: list[str]) -> Run:
    with tempfile.NamedTemporaryFile() as counted:
        started = time.monotonic()
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, counted.name]
        done = subprocess.run([*starter, *command], capture_output=True, text=True, cwd=ROOT, check=True)
        wall_seconds = time.monotonic() - started
        code, cpu_seconds, peak_bytes = json.load(counted)
    if code:
        raise SystemExit(f"{' '.join(command)}: failed\n{done.stderr[-3000:]}")
    return Run(json.loads(done.stdout.splitlines()[-1]), wall_seconds, cpu_seconds, peak_bytes)


def show(experiment: str, what: str, **figures: object) -> None:
    print(json.dumps({"experiment": experiment, "what": what, **figures}), flush=True)


def report(experiment: str, what: str, run: Run, **more: object) -> None:
    """Print the figures of a run."""
    show(
        experiment,
        what,
        instances=run.figures["instances"],
        instances_per_core_second=round(run.figures["instances"] / run.cpu_seconds),
        wall_seconds=round(run.wall_seconds, 1),
        cpu_seconds=round(run.cpu_seconds, 1),
        peak_megabytes=round(run.peak_bytes / 1e6),
        seconds_by_stage=run.figures.get("seconds_by_stage", {}),
        **more,
    )


def speed(bench: Bench) -> None:
    """Text to finished TFRecords."""
    text = bench.text(SPEED_MEGABYTES)
    for max_seq_length in (128, 512):
        run = bench.examples(text, length=max_seq_length)
        report("speed", f"length {max_seq_length}, dupe 5, vocabulary given", run)
    report("speed", "length 128, dupe 5, vocabulary learned", bench.examples(text, vocab=False))


def workers(bench: Bench) -> None:
    """Two worker processes against one, on much text, because starting and stopping takes four seconds per stage."""
    text = bench.text(WORKERS_MEGABYTES)
    one, two = bench.examples(text), bench.examples(text, words=("--", *TWO_WORKERS))
    report("workers", "1 process", one)
    report("workers", "2 processes", two, speed_up=round(one.wall_seconds / two.wall_seconds, 2))


def memory(bench: Bench) -> None:
    """Peak resident memory against the size of the corpus and the number of passes."""
    small = bench.examples(bench.text(10), dupe=1)
    report("memory", "10 MB, dupe 1", small)
    for megabytes, dupe_factor in ((100, 1), (1000, 1), (10, 10), (100, 10)):
        run = bench.examples(bench.text(megabytes), dupe=dupe_factor)
        growth = round(run.peak_bytes / small.peak_bytes - 1, 3)
        report("memory", f"{megabytes} MB, dupe {dupe_factor}", run, growth=growth)


def costs(bench: Bench) -> None:
    """Costs per megabyte of text without start-up: each cost is a difference of two whole runs."""
    large, small = bench.text(SPEED_MEGABYTES), bench.text(1)
    megabytes = (large.stat().st_size - small.stat().st_size) / 1e6

    def more(**settings) -> tuple[float, float]:
        """CPU seconds and instances added per megabyte."""
        runs = [bench.examples(text, **settings) for text in (large, small)]
        cpu, instances = ([r.cpu_seconds for r in runs], [r.figures["instances"] for r in runs])
        return (cpu[0] - cpu[1]) / megabytes, (instances[0] - instances[1]) / megabytes

    once, _ = more(dupe=1)
    for length in (128, 512):
        five, instances = more(dupe=5, length=length)
        single = more(dupe=1, length=512)[0] if length == 512 else once
        show("costs", f"a pass at {length}", cpu_seconds=round((five - single) / 4, 4), instances=round(instances / 5))
        if length == 128:
            show("costs", "documents", cpu_seconds=round(once - (five - single) / 4, 4))
    for what, settings in (("sentences", {"segments": "sentences"}), ("vocabulary", {"vocab": False})):
        show("costs", what, cpu_seconds=round(more(dupe=1, **settings)[0] - once, 4))


def buckets(bench: Bench) -> None:
    """Peak resident memory of the process against `corpus.bucket_bytes`."""
    text = bench.text(100)
    for bucket_bytes in (4 << 20, 16 << 20, 64 << 20):
        words = ("--set", f"corpus.bucket_bytes={bucket_bytes}", "--", *ONE_WORKER)
        report("buckets", f"{bucket_bytes >> 20} MiB", bench.examples(text, dupe=1, words=words))


EXPERIMENTS: dict[str, Callable[[Bench], None]] = {f.__name__: f for f in (speed, workers, memory, costs, buckets)}


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[EXPERIMENT]...", help="All, if none is named.")] = None,
    work: Annotated[Path, typer.Option(help="A folder for text and shards (15 GB), outside the checkout.")] = Path(),
) -> None:
    """Measure `bert-tfx examples`; print a line of JSON for each result."""
    work.mkdir(parents=True, exist_ok=True)
    for name in names or EXPERIMENTS:
        EXPERIMENTS[name](Bench(work.resolve()))


if __name__ == "__main__":
    typer.run(main)
