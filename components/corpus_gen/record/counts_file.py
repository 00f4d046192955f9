"""Writes what was counted while documents were made."""

from __future__ import annotations

from typing import Any

from bert_keras.errors import InputError
from components.corpus_gen.filters import leaks
from components.corpus_gen.record.card import CARD_FILE, corpus_card
from components.corpus_gen.record.licences import LICENCES
from components.corpus_gen.record.tally import nested
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.sorted_runs import SPLITS
from components.io.shards import whole_file, write_json

# Counts of documents by split (SPLITS). READ has those made before a document has a split, FOUND what the filters found
# in documents, whether they dropped them or not, RECORD what became of documents (`tally`). SOURCES has the counts of
# each source that has a name, LICENCES the licence files beside the text (`licences.licences_of`), if there are any.
COUNTS_FILE = "corpus.json"
READ, RECORD, SOURCES = "read", "record", "sources"


def write_counts(
    counts: dict[str, dict[Any, int]],
    documents_dir: str,
    settings: CorpusSettings,
    licences: list[dict[str, str]],
) -> None:
    """Write CARD_FILE, and COUNTS_FILE, which marks a complete folder: of all sources, and of each that has a name.

    Raises:
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
    sources = {SOURCES: by_source} if by_source else {}
    content = {**whole, **sources, **leaks.described(settings), **({LICENCES: licences} if licences else {})}
    with whole_file(f"{documents_dir}/{CARD_FILE}", documents_dir) as file:
        file.write(corpus_card(content, settings).encode())
    write_json(f"{documents_dir}/{COUNTS_FILE}", content)
