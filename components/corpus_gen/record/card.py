"""Writes what was counted while documents were made: as JSON, and as a card, a page for people."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_keras.data.example_format import EVAL_FRACTION, SOURCE_RATES
from bert_keras.data.mixture import source_rates
from bert_keras.errors import InputError
from components.corpus_gen.filters import leaks, personal_data
from components.corpus_gen.filters.chain import RULES
from components.corpus_gen.record.tally import (
    ALL,
    DUPLICATE,
    FATES,
    FOUND,
    KEPT,
    LANGUAGES,
    NEAR_DUPLICATE,
    SOURCES,
    nested,
)
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.sorted_runs import SPLITS
from components.io.shards import COUNTS_FILE as COUNTS_FILE
from components.io.shards import write_file, write_json

# Counts of documents by split (SPLITS). READ has those made before a document has a split, FOUND what the filters found
# in documents, whether they dropped them or not, RECORD what became of documents (`tally`). SOURCES has the counts of
# each source that has a name.
READ, RECORD = "read", "record"
CARD_FILE = "corpus_card.md"
UNITS = ("documents", "bytes", "words")
# Name of the evaluation sets in corpus.json (`filters.leaks.described`).
SETS = "decontaminated"
# Settings that hold a path of the run directory; their content is in corpus.json.
_PATHS = ("decontaminate",)
_Fates = Mapping[str, Mapping[str, int]]
_number = "{:,}".format


def write_counts(counts: dict[str, dict[Any, int]], documents_dir: str, settings: CorpusSettings) -> None:
    """Write CARD_FILE, and COUNTS_FILE, which marks a complete folder: of all sources, and of each that has a name.

    InputError: no document remains, or none of a source.
    """
    by_source: dict[str, dict[str, Any]] = {"": {}}
    for key, counted in counts.items():
        name, _, split = key.rpartition("/")
        by_source.setdefault(name, {})[split] = counted
    for name, by_split in by_source.items():
        if not sum(by_split[split]["documents"] for split in SPLITS) and not by_split[READ].get("read_before"):
            read = ", ".join(f"{what} {count:,}" for what, count in sorted(by_split[READ].items()))
            which = f"source {name}" if name else "the corpus"
            raise InputError(f"no document remains of {which} ({read}): give more text, or change corpus.cleaning")
    whole = by_source.pop("")
    whole[RECORD] = nested(whole[RECORD])
    sources: dict[str, Any] = {SOURCES: by_source} if by_source else {}
    if by_source and settings.source_power < 1.0:
        sentences = {name: by_split[SPLITS[0]]["segments"] for name, by_split in by_source.items()}
        sources[SOURCE_RATES] = source_rates(sentences, settings.source_power)
    content = {**whole, EVAL_FRACTION: settings.eval_fraction, **sources, **leaks.described(settings)}
    write_file(f"{documents_dir}/{CARD_FILE}", corpus_card(content, settings).encode())
    write_json(f"{documents_dir}/{COUNTS_FILE}", content)


def corpus_card(counts: Mapping[str, Any], settings: CorpusSettings) -> str:
    """Markdown from the content of corpus.json and the settings that made it."""
    return "\n".join(_lines(counts, settings)) + "\n"


def _lines(counts: Mapping[str, Any], settings: CorpusSettings) -> Iterator[str]:
    record, found = counts["record"], counts.get("found", {})
    kept, read = record[ALL].get(KEPT, {}), total(record[ALL])
    yield "# Corpus card"
    yield ""
    yield f"Licence: {settings.licence or 'not given (`corpus.licence`)'}"
    yield ""
    yield from _table(
        ["", *UNITS],
        [
            ["read", *map(_number, read.values())],
            *([name, *_cells(record[ALL][name])] for name in [*RULES, *FATES] if name in record[ALL]),
        ],
    )
    yield ""
    yield f"{counts['eval']['documents']:,} of the {kept.get('documents', 0):,} documents are held out."
    compared = sum(record[ALL].get(fate, {}).get("documents", 0) for fate in (KEPT, DUPLICATE, NEAR_DUPLICATE))
    near = record[ALL].get(NEAR_DUPLICATE, {}).get("documents", 0)
    share = f"{near / max(compared, 1):.2%} of the documents" if settings.cleaning.near_duplicates else "not looked for"
    yield f"Near duplicates: {share}."
    yield from _section("Rules", ([name, text] for name, text in {**RULES, **FATES}.items() if name in record[ALL]))
    for title, by in (("Sources", SOURCES), ("Languages", LANGUAGES)):
        rows = (
            [name, *_cells(total(fates)), *_cells(fates.get(KEPT, {})), _dropped(fates)]
            for name, fates in sorted(record[by].items())
        )
        columns = [by, *(f"{unit} {what}" for what in ("read", "kept") for unit in UNITS), "documents dropped"]
        yield from _section(title, rows, columns, "not counted (`corpus.count_languages`)")
    personal = (
        [rule, text, _number(found.get(rule, 0)) if getattr(settings.personal_data, switch) else "not searched"]
        for (rule, text), switch in zip(personal_data.RULES.items(), ("email", "ip", "card", "phone"), strict=True)
    )
    yield from _section("Personal data (`corpus.personal_data`)", personal, ["rule", "", "found"])
    in_set = {checked["name"]: leaks.IN_SET.format(checked["name"]) for checked in counts.get(SETS, [])}
    sets = (
        [
            checked["name"],
            *(_number(checked[name]) for name in ("texts", "not_searched", "unread")),
            _number(found.get(in_set[checked["name"]], 0)),
        ]
        for checked in counts.get(SETS, [])
    )
    columns = [
        *("set", "texts", "not searched: too short"),
        *("not searched: rows that cannot be read", "documents with one of its texts"),
    ]
    yield from _section("Evaluation sets", sets, columns, "not looked for (`corpus.decontaminate`)")
    others = sorted(found.keys() - personal_data.RULES.keys() - set(in_set.values()))
    yield from _section("Found in documents", ([name, RULES.get(name, ""), _number(found[name])] for name in others))
    by_source = ([name, _by_count(rules)] for name, rules in sorted(record.get(FOUND, {}).items()))
    yield from _section("Found, by source", by_source, ["source", "found"], "nothing")
    changed = ([f"corpus.{name}", value] for name, value in _changed(settings))
    yield from _section("Settings", changed, ["setting", "value"], "the defaults")


def total(fates: _Fates) -> dict[str, int]:
    """The sums of all fates."""
    return {unit: sum(fate[unit] for fate in fates.values()) for unit in UNITS}


def _section(
    title: str, rows: Iterable[list[str]], columns: list[str] | None = None, none: str = "none"
) -> Iterator[str]:
    lines = list(rows)
    yield from ("", f"## {title}", "")
    yield from (
        _table(columns or ["name", "", ""][: len(lines[0])], lines) if lines else [f"{none[:1].upper()}{none[1:]}."]
    )


def _table(columns: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    for row in (columns, ["---"] * len(columns), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


def _cells(fate: Mapping[str, int]) -> list[str]:
    return [_number(fate.get(unit, 0)) for unit in UNITS]


def _dropped(fates: _Fates) -> str:
    return _by_count({fate: units["documents"] for fate, units in fates.items() if fate != KEPT})


def _by_count(counts: Mapping[str, int]) -> str:
    """{"too_short": 2, "empty": 1000} -> "1,000 empty, 2 too_short"."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{_number(count)} {name}" for name, count in ordered)


def _changed(settings: Any, default: Any = None, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings that are not the default, by dotted name: the filters that are on, with their thresholds."""
    default = default or type(settings)()
    for field in dataclasses.fields(settings):
        value, usual = getattr(settings, field.name), getattr(default, field.name)
        if dataclasses.is_dataclass(value):
            yield from _changed(value, usual, f"{prefix}{field.name}.")
        elif value != usual and field.name not in _PATHS:
            yield f"{prefix}{field.name}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
