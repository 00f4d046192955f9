"""Recall, false alarms, speed and memory of `corpus.decontaminate` (components.corpus_gen.filters.leaks).

    python -m benchmarks.corpus.bench_leaks TEXT SET... [--sentences 50] [--show 20]

TEXT is plain text with a blank line between documents; SET are evaluation files. For each set and each kind below,
`--sentences` of its texts are planted, each into a document of its own, in the middle of a line:

    verbatim     as in the file
    re-cased     in capitals
    re-wrapped   a line end after each fifth word, two blanks between the others
    two changed  two words, at random, are others

Printed, one JSON object a line: the share found by set and kind, of all texts and of those with ngram_words words or
more; what is found in the text without plants, with the words around it; MB a second of one core; memory.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

from components.corpus_gen.filters.leaks import LeakFilter, LeakTable, make_table
from components.corpus_gen.settings import LeakSettings
from components.corpus_gen.words import hash_words, words_of
from components.task_example_gen.evaluation_sets import read_evaluation_set

KINDS = ("verbatim", "re-cased", "re-wrapped", "two changed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a field of LeakSettings")
    args = parser.parse_args()
    settings = LeakSettings(**{name: int(value) for name, value in (pair.split("=") for pair in args.set)})
    documents = [
        lines
        for text in re.split(r"\n\s*\n", Path(args.text).read_text("utf-8"))
        if (lines := [line.strip() for line in text.split("\n") if line.strip()])
    ]
    sets = [read_evaluation_set(path, Path(path).name) for path in args.sets]
    started = time.process_time()
    content = make_table(sets, settings).to_bytes()
    report("table", seconds=round(time.process_time() - started, 1), bytes=len(content), settings=vars(settings))
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        file.write(content)
        file.flush()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        leaks = LeakFilter(settings, file.name)
        report("sets", sets=LeakTable.read(file.name).sets)
    clean = clean_text(documents, leaks, args.show)
    report("memory", peak_mb_added=(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    plant(clean, sets, leaks, settings, args.sentences)


def clean_text(documents: list[list[str]], leaks: LeakFilter, shown: int) -> list[list[str]]:
    """Time the filter on the text as it is; report what it finds; return the documents without leaks."""
    found: Counter[str] = Counter()
    started = time.process_time()
    dropped = [bool(leaks(lines, found)[1]) for lines in documents]
    seconds = time.process_time() - started
    size = sum(len(line.encode()) + 1 for lines in documents for line in lines)
    report(
        "text without plants",
        mb_a_core_second=round(size / 1e6 / seconds, 1),
        documents=len(documents),
        bytes=size,
        dropped=sum(dropped),
        found=dict(sorted(found.items())),
    )
    of_leaks = [lines for lines, leak in zip(documents, dropped, strict=True) if leak]
    for lines in random.Random(0).sample(of_leaks, min(shown, len(of_leaks))):
        text = "\n".join(lines).replace(" n't", "n't")
        words = words_of(text)
        for start, end, number in leaks.find(hash_words(text))[:2]:
            report("alarm", set=number, words=b" ".join(words[start:end]).decode())
    return [lines for lines, leak in zip(documents, dropped, strict=True) if not leak]


def plant(documents: list[list[str]], sets: list, leaks: LeakFilter, settings: LeakSettings, count: int) -> None:
    """Plant texts of each set in each way, each into a document of its own; report the share that is found."""
    rng = random.Random(1)
    hosts = rng.sample([lines for lines in documents if sum(map(len, lines)) > 500], count)
    vocabulary = [word for lines in rng.sample(documents, 200) for line in lines for word in line.split()]
    for evaluation_set in sets:
        texts = rng.sample(sorted({text for text in evaluation_set.texts if text.strip()}), count)
        row: dict[str, str] = {}
        for kind in KINDS:
            by_length: dict[str, list[bool]] = {"all": [], "long": [], "medium": []}
            for text, lines in zip(texts, hosts, strict=True):
                line = rng.randrange(len(lines))
                words = lines[line].split()
                middle = rng.randint(0, len(words))
                planted = " ".join([*words[:middle], changed(text, kind, vocabulary, rng), *words[middle:]])
                hit = bool(leaks([*lines[:line], *planted.split("\n"), *lines[line + 1 :]], Counter())[1])
                by_length["all"].append(hit)
                if (length := len(words_of(text))) >= settings.min_words:
                    by_length["long" if length >= settings.ngram_words else "medium"].append(hit)
            row |= {f"{kind}, {name}": f"{sum(hits)}/{len(hits)}" for name, hits in by_length.items()}
        report("recall", set=evaluation_set.name, **row)


def changed(text: str, kind: str, vocabulary: list[str], rng: random.Random) -> str:
    """The text in one of KINDS; letters of languages without blanks are words, too."""
    if kind == "re-cased":
        return text.upper()
    if kind == "re-wrapped":
        words = text.split()
        return "\n".join("  ".join(words[start : start + 5]) for start in range(0, len(words), 5))
    if kind == "two changed":
        pieces = re.findall(r"[\u4e00-\u9fff]|[^\s\u4e00-\u9fff]+|\s+", text)
        places = [place for place, piece in enumerate(pieces) if words_of(piece)]
        for place in rng.sample(places, min(2, len(places))):
            pieces[place] = rng.choice([word for word in rng.sample(vocabulary, 50) if len(words_of(word)) == 1])
        return "".join(pieces)
    return text


def report(what: str, **figures: object) -> None:
    print(json.dumps({"": what, **figures}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
