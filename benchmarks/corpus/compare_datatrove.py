"""Compares the quality rules with datatrove's on the same documents, decision by decision, and their speed.

    python -m venv .venv-datatrove
    .venv-datatrove/bin/pip install datatrove==0.10.1 spacy==3.8.18 regex unicodedata2==18.0.0 pycld2 numpy
    BERT_DATA_DIR=DIR PYTHONPATH=. .venv-datatrove/bin/python benchmarks/corpus/compare_datatrove.py [TEXT] [--limit N]

Documents: reviews, passages of 25 lines of novels and Chinese articles of BERT_DATA_DIR; TEXT, a file of documents
separated by blank lines. Each family of rules gets every document as it was read, so that one family's decisions do not
hide another's. Both sides judge a document in turn; CPU seconds are the process's own.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import random
import re
import resource
import tarfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

from components.corpus_gen.filters.quality import Quality
from components.corpus_gen.settings import QualitySettings

_PASSAGE_LINES = 25
# datatrove's reasons -> our rules.
_NAMES = {
    "dup_line_frac": "gopher_repeated_lines",
    "dup_line_char_frac": "gopher_repeated_line_characters",
    **{f"top_{n}_gram": f"gopher_top_{n}_gram" for n in (2, 3, 4)},
    **{f"duplicated_{n}_n_grams": f"gopher_repeated_{n}_grams" for n in range(5, 11)},
    "gopher_short_doc": "gopher_few_words",
    "gopher_long_doc": "gopher_many_words",
    "gopher_below_avg_threshold": "gopher_short_words",
    "gopher_above_avg_threshold": "gopher_long_words",
    "gopher_too_many_hashes": "gopher_hashes",
    "gopher_too_many_ellipsis": "gopher_ellipses",
    "gopher_too_many_bullets": "gopher_bullet_lines",
    "gopher_too_many_end_ellipsis": "gopher_ellipsis_lines",
    "gopher_below_alpha_threshold": "gopher_non_alphabetic",
    "gopher_enough_stop_words": "gopher_stop_words",
    "lorem_ipsum": "c4_lorem_ipsum",
    "curly_bracket": "c4_curly_bracket",
    "too_few_sentences": "c4_few_sentences",
    "line_punct_ratio": "fineweb_unpunctuated_lines",
    "short_line_ratio": "fineweb_short_lines",
    "char_dup_ratio": "fineweb_repeated_lines",
    "list_ratio": "fineweb_many_lines",
}
_LINES = {
    "line-filter-too_long_word": "c4_line_long_word",
    "line-filter-no_terminal_punc": "c4_line_punctuation",
    "line-filter-too_few_words": "c4_line_few_words",
    "line-filter-javascript": "c4_line_javascript",
    "line-filter-policy": "c4_line_policy",
}


def documents(path: str | None, limit: int) -> Iterator[tuple[str, list[str]]]:
    """(source, lines) of at most `limit` documents of each source, drawn with a fixed seed."""
    data, sources = os.environ["BERT_DATA_DIR"], {}
    if path:
        with open(path, encoding="utf-8") as file:
            sources["text"] = [_lines(document) for document in file.read().split("\n\n")]
    sources["reviews"] = []
    for archive in sorted(glob.glob(f"{data}/imdb/*.tar.gz")):
        with tarfile.open(archive) as members:
            for member in members:
                if member.name.endswith(".txt") and (file := members.extractfile(member)):
                    sources["reviews"].append(_lines(file.read().decode().replace("<br />", "\n")))
    sources["novels"] = []
    for name in sorted(glob.glob(f"{data}/corpus_novels/*.txt")):
        with open(name, encoding="utf-8-sig") as file:
            lines = _lines(file.read())
        sources["novels"] += [lines[start : start + _PASSAGE_LINES] for start in range(0, len(lines), _PASSAGE_LINES)]
    sources["zhwiki"] = []
    for name in sorted(glob.glob(f"{data}/corpus_zhwiki/wiki_*")):
        with open(name, encoding="utf-8") as file:
            sources["zhwiki"] += [_lines(text) for text in re.findall(r"<doc [^>]*>\n(.*?)</doc>", file.read(), re.S)]
    for source, found in sources.items():
        kept = [lines for lines in found if lines]
        random.Random(1).shuffle(kept)
        yield from ((source, lines) for lines in kept[:limit])


def _lines(text: str) -> list[str]:
    return [stripped for line in text.split("\n") if (stripped := line.strip())]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def reference_filters() -> dict[str, Any]:
    """datatrove's filters with their defaults, by our switch."""
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    return {
        "gopher_repetition": GopherRepetitionFilter(),
        "gopher": GopherQualityFilter(),
        "c4": C4QualityFilter(),
        "fineweb": FineWebQualityFilter(),
    }


def record(path: str) -> None:
    """Write datatrove's decisions into a JSON file of documents: its lines, a rule or "" by switch, and C4's lines."""
    from datatrove.data import Document

    with open(path, encoding="utf-8") as file:
        recorded = json.load(file)
    for entry in recorded:
        for switch, judge in reference_filters().items():
            text = "\n".join(entry["lines"])
            document = Document(text=text, id="")
            result = judge.filter(document)
            entry[switch] = "" if result is True else _NAMES[result[1]]
            if switch == "c4":
                entry["c4_lines"] = None if entry[switch] or document.text == text else _lines(document.text)
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in recorded)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"[\n{lines}\n]\n")


def main(path: str | None, limit: int) -> None:
    """Print tables of decisions and of speed, and every document with different ones."""
    from datatrove.data import Document

    theirs = reference_filters()
    ours = {family: Quality(QualitySettings(**{family: True})) for family in theirs}
    whole = Quality(QualitySettings(gopher_repetition=True, gopher=True, c4=True, fineweb=True))
    agreed, only_ours, only_theirs, other = Counter(), Counter(), Counter(), Counter()
    lines_differ, cpu, judged, size, chain_differ = Counter(), Counter(), Counter(), 0, Counter()
    differences = []
    for document in theirs.values():  # load the tokenizer
        document.filter(Document(text="Some words. " * 100, id=""))
    for number, (source, lines) in enumerate(documents(path, limit)):
        text = "\n".join(lines)
        judged[source] += 1
        size += len(text.encode())
        # The whole chain first, in turns: neither side has seen this document.

        def of_datatrove(text=text) -> bool:
            document = Document(text=text, id="")
            return all(family.filter(document) is True for family in theirs.values())

        def of_ours(lines=lines) -> bool:
            return not whole(lines, Counter())[1]

        sides, keeps = {"datatrove": of_datatrove, "ours": of_ours}, {}
        for name in sorted(sides, reverse=bool(number % 2)):
            start = _cpu_seconds()
            keeps[name] = sides[name]()
            cpu[name] += _cpu_seconds() - start
        chain_differ[source] += keeps["ours"] != keeps["datatrove"]
        for family in theirs:
            before = {stat: theirs[family].stats[stat].total for stat in _LINES}
            reference = Document(text=text, id="")
            result = theirs[family].filter(reference)
            expected = "" if result is True else _NAMES[result[1]]
            found: Counter[str] = Counter()
            kept, rule = ours[family](lines, found)
            if rule == expected:
                agreed[rule or f"{family}: kept"] += 1
            else:
                only_theirs[expected or f"{family}: kept"] += 1
                only_ours[rule or f"{family}: kept"] += 1
                other[family] += bool(rule) != bool(expected)
                differences.append((source, family, expected or "kept", rule or "kept", text[:100]))
            if family == "c4":
                for stat, name in _LINES.items():
                    lines_differ[name] += theirs[family].stats[stat].total - before[stat] != found[name]
                lines_differ["text"] += not rule and not expected and _lines(reference.text) != kept
    print(f"documents: {sum(judged.values()):,} {dict(judged)}; {size:,} bytes\n")
    print("| rule | both | datatrove alone | ours alone |\n|---|---|---|---|")
    for rule in dict.fromkeys([*_NAMES.values(), *(f"{family}: kept" for family in theirs)]):
        print(f"| {rule} | {agreed[rule]:,} | {only_theirs[rule]} | {only_ours[rule]} |")
    print(f"\nkept by one and dropped by the other: {dict(other)}; by the chain: {dict(chain_differ)}")
    print(f"documents in which C4's rules removed other lines: {dict(lines_differ)}")
    for name, seconds in cpu.items():
        print(f"{name}: {seconds:.1f} CPU seconds, {size / seconds / 1e6:.2f} MB a core-second")
    for difference in differences:
        print(*difference, sep="\t")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?")
    parser.add_argument("--limit", type=int, default=6_000)
    parser.add_argument("--record", help="write datatrove's decisions into this file of documents, and end")
    arguments = parser.parse_args()
    if arguments.record:
        record(arguments.record)
    else:
        main(arguments.text, arguments.limit)
