"""Compares the way from JSON lines to filtered text with datatrove's: speed and memory, with reading and writing.

    python -m venv .venv-datatrove
    .venv-datatrove/bin/pip install datatrove==0.10.1 spacy==3.8.18 orjson
    export BERT_DATA_DIR=DIR PYTHONPATH=.
    .venv/bin/python benchmarks/corpus/compare_chain.py [TEXT] --datatrove .venv-datatrove/bin/python

The text is that of compare_datatrove.py, shuffled, in pieces. A process of each side filters each piece, in turn, on
one core, with the four families of quality rules: datatrove's LocalPipelineExecutor with JsonlReader and JsonlWriter,
without compression; ours as `bert-tfx examples` makes documents, which also drops exact duplicates and splits
sentences. CPU seconds (`wait4`) and peak memory (VmHWM) are those of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

OURS, DATATROVE = "ours", "datatrove"


def filter_ours(text: str, output: str) -> None:
    """Make documents of a file; print the number of those that no quality rule dropped."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from components.corpus_gen.inputs import find_inputs
    from components.corpus_gen.readers import read_units
    from components.corpus_gen.settings import CorpusSettings, QualitySettings
    from components.corpus_gen.transforms import generate_documents, remove_intermediate

    settings = CorpusSettings(quality=QualitySettings(gopher_repetition=True, gopher=True, c4=True, fineweb=True))
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        generate_documents(pipeline, read_units(find_inputs([text], settings), settings), settings, output)
    remove_intermediate(output)
    fates = json.loads(Path(output, "corpus.json").read_text())["record"]["all"]
    print(sum(fates.get(fate, {"documents": 0})["documents"] for fate in ("kept", "duplicates")))


def filter_datatrove(text: str, output: str) -> None:
    """Filter a file with datatrove; print the number of documents that remain."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    from benchmarks.corpus.compare_datatrove import reference_filters

    folder, name = os.path.split(text)
    steps = [
        JsonlReader(folder, glob_pattern=name),
        *reference_filters().values(),
        JsonlWriter(output, compression=None),
    ]
    LocalPipelineExecutor(steps, tasks=1, workers=1, logging_dir=f"{output}/log").run()
    with open(f"{output}/00000.jsonl", encoding="utf-8") as file:
        print(sum(1 for _ in file))


def measure(side: str, python: str, text: str) -> tuple[float, float, int]:
    """(CPU seconds, peak memory in MiB, documents that remain) of filtering a file in a new process."""
    with tempfile.TemporaryDirectory() as output, tempfile.TemporaryFile("w+") as said:
        command = [python, __file__, text, "--side", side, "--output", f"{output}/out"]
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{side}: exit code {process.returncode}")
        said.seek(0)
        kept, peak = said.read().split()[-2:]
        return used.ru_utime + used.ru_stime, int(peak) / 1024, int(kept)


def write_pieces(folder: str, path: str | None, limit: int, piece_bytes: int) -> list[str]:
    """Write shuffled documents to JSON lines of about `piece_bytes` of text each; returns the paths of whole pieces."""
    from benchmarks.corpus.compare_datatrove import documents

    texts = ["\n".join(lines) for _, lines in documents(path, limit)]
    random.Random(2).shuffle(texts)
    paths, left = [], 0
    file = None
    for text in texts:
        if left <= 0:
            # In a folder of its own: datatrove's pattern "0.jsonl" also takes 10.jsonl.
            paths.append(f"{folder}/{len(paths)}/text.jsonl")
            os.mkdir(os.path.dirname(paths[-1]))
            file, left = open(paths[-1], "w", encoding="utf-8"), piece_bytes  # noqa: SIM115
        file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        left -= len(text.encode())
    if file:
        file.close()
    return paths[:-1] if left > 0 and len(paths) > 1 else paths


def main(arguments: argparse.Namespace) -> None:
    """Print a row for each piece, and the sums."""
    pythons = {OURS: sys.executable, DATATROVE: arguments.datatrove}
    with tempfile.TemporaryDirectory() as folder:
        total, seconds, peak = 0, defaultdict(float), defaultdict(float)
        print("| text, MB | side | CPU seconds | MB a core-second | peak memory, MiB | documents kept |")
        print("|---|---|---|---|---|---|")
        pieces = write_pieces(folder, arguments.text, arguments.limit, arguments.piece_bytes)
        for number, path in enumerate(pieces[: arguments.pieces]):
            size = sum(len(json.loads(line)["text"].encode()) for line in open(path, encoding="utf-8"))  # noqa: SIM115
            total += size
            for side in sorted(pythons, reverse=bool(number % 2)):
                cpu, memory, kept = measure(side, pythons[side], path)
                seconds[side] += cpu
                peak[side] = max(peak[side], memory)
                print(
                    f"| {size / 1e6:.1f} | {side} | {cpu:.1f} | {size / 1e6 / cpu:.2f} | {memory:.0f} | {kept:,} |",
                    flush=True,
                )
        for side, cpu in seconds.items():
            print(f"| {total / 1e6:.1f} | {side}, all | {cpu:.1f} | {total / 1e6 / cpu:.2f} | {peak[side]:.0f} | |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?")
    parser.add_argument("--datatrove", help="the Python with datatrove")
    parser.add_argument("--limit", type=int, default=1_000_000, help="documents of each source, at most")
    parser.add_argument("--piece-bytes", type=int, default=30_000_000)
    parser.add_argument("--pieces", type=int, default=None, help="pieces to filter, at most")
    parser.add_argument("--side", choices=[OURS, DATATROVE], help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        (filter_ours if given.side == OURS else filter_datatrove)(given.text, given.output)
        # Not `ru_maxrss`, which begins with the memory of the process that started this one.
        print(*re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text()))
    else:
        main(given)
