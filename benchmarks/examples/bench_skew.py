"""Benchmark of `bert-tfx examples` on a skewed corpus: one source, or one document, with half of the text.

    .venv/bin/python -m benchmarks.examples.bench_skew --work /tmp/skew  # 400 MB: 8 GB of disk
    .venv/bin/python -m benchmarks.examples.bench_skew --work /tmp/skew --megabytes 4000 even document  # one of 2 GB

The same command with two worker processes on the same number of bytes; the kernel counts CPU seconds and memory
(`resource_usage.py`). The text is generated from a seed: sentences of random words, one per line.

Cases (default: all):
    even        64 files of the same size
    source      the same documents, half of them in one file
    compressed  the same documents, half of them in one gzip file, which one worker must read from the start
    document    64 files of the same size of half the bytes, and one document of the other half
    records     the same in JSON lines: the document is one line
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness.resource_usage import measure

ROOT = Path(__file__).parents[2]
FILES = 64
SEED = 12345
WORDS, SENTENCES = 30_000, 100_000
SENTENCES_A_DOCUMENT = 40
TWO_WORKERS = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")


class Text:
    """Documents of random words, of a given total size."""

    def __init__(self, seed: int):
        self._random = np.random.default_rng(seed)
        letters = np.array(list("etaoinshrdlcumwfgypbvk"))
        words = np.array(["".join(self._random.choice(letters, n)) for n in self._random.integers(2, 10, WORDS)])
        # Zipf's law, as in any language.
        chances = 1 / np.arange(1, WORDS + 1)
        drawn = self._random.choice(words, (SENTENCES, 24), p=chances / chances.sum())
        lengths = self._random.integers(8, 25, SENTENCES)
        self._sentences = [" ".join(row[:n]) + "." for row, n in zip(drawn, lengths, strict=True)]
        self._number = 0

    def documents(self, size: int) -> Iterator[list[str]]:
        """Documents of about `size` bytes together; no two are the same."""
        while size > 0:
            self._number += 1
            chosen = self._random.integers(0, SENTENCES, SENTENCES_A_DOCUMENT)
            document = [f"document {self._number}.", *(self._sentences[i] for i in chosen)]
            size -= sum(map(len, document)) + len(document) + 1
            yield document


def _write(path: Path, documents: Iterable[list[str]], write_as: Callable[[list[str]], str]) -> None:
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        for document in documents:
            file.write(write_as(document))


def _plain(document: list[str]) -> str:
    return "\n".join(document) + "\n\n"


def _record(document: list[str]) -> str:
    return json.dumps({"text": "\n".join(document)}) + "\n"


def write_corpus(case: str, folder: Path, size: int) -> None:
    """Write the text of a case, `size` bytes."""
    text = Text(SEED)
    first, others = (list(text.documents(size // 2)) for _ in range(2))
    suffix, write_as = (".jsonl", _record) if case == "records" else (".txt", _plain)
    if case == "even":
        first, others = [], first + others
    else:
        if case in ("document", "records"):
            first = [[sentence for document in first for sentence in document]]
        _write(folder / f"first{suffix}{'.gz' * (case == 'compressed')}", first, write_as)
    for number in range(FILES):
        _write(folder / f"other-{number}{suffix}", others[number::FILES], write_as)


def run_case(case: str, work: Path, size: int, vocabulary: Path | None) -> dict:
    """Make the examples of a case; return the resources used."""
    folder, output = work / "corpus", work / "examples"
    for path in (folder, output):
        shutil.rmtree(path, ignore_errors=True)
    folder.mkdir(parents=True)
    write_corpus(case, folder, size)
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", "examples", "--corpus", str(folder)]
    command += ["--output", str(output), "--segments", "lines", "--dupe-factor", "1"]
    command += ["--vocab", str(vocabulary)] if vocabulary else ["--vocab-size", "8000"]
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        usage = measure([*command, "--", *TWO_WORKERS], stdout=printed, stderr=errors, cwd=ROOT)
        printed.seek(0), errors.seek(0)
        if usage.code:
            raise SystemExit(f"{case}: failed\n{errors.read()[-3000:]}")
        figures = json.loads(printed.read().splitlines()[-1])
    shards = sorted((output / "Split-train").glob("*"))
    sizes = [path.stat().st_size for path in shards]
    digest = hashlib.sha256()
    for path in shards:
        digest.update(path.read_bytes())
    if vocabulary is None:
        shutil.copy(output / "vocab.txt", work / "vocab.txt")
    return {
        "case": case,
        # Of plain text: records are not counted.
        "megabytes_read": round(figures["corpus"]["read"].get("read_bytes", 0) / 1e6),
        "documents": figures["documents"],
        "wall_seconds": round(usage.wall_seconds, 1),
        "cpu_seconds": round(usage.cpu_seconds, 1),
        "seconds_by_stage": figures["seconds_by_stage"],
        "peak_megabytes": round(usage.peak_bytes / 1e6),
        "shards": len(shards),
        "largest_shard_megabytes": round(max(sizes) / 1e6, 1),
        "largest_to_mean": round(max(sizes) * len(sizes) / sum(sizes), 3),
        "sha256": digest.hexdigest()[:16],
    }


CASES = ("even", "source", "compressed", "document", "records")


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[CASE]...", help="All, if none is named.")] = None,
    work: Annotated[Path, typer.Option(help="A folder for text and shards, outside the checkout.")] = Path(),
    megabytes: Annotated[int, typer.Option(help="Of text, in each case.")] = 400,
) -> None:
    """Measure `bert-tfx examples` on skewed text; print a table and a line of JSON."""
    work = work.resolve()
    # One vocabulary for all, of a small even corpus.
    if not (work / "vocab.txt").exists():
        run_case("even", work, 10_000_000, None)
    rows = []
    for name in names or CASES:
        rows.append(run_case(name, work, megabytes * 1_000_000, work / "vocab.txt"))
        Console(stderr=True).print(rows[-1])
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=200).print(table)
    print(json.dumps(rows))


if __name__ == "__main__":
    typer.run(main)
