"""What every rule left of a corpus, and examples of what it dropped."""

from __future__ import annotations

import glob
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from components.corpus_gen.filters.chain import RULES
from components.corpus_gen.filters.personal_data import PersonalData
from components.corpus_gen.record.card import total
from components.corpus_gen.record.tally import ALL, DROPPED, FATES, KEPT
from components.corpus_gen.settings import PersonalDataSettings

EXAMPLES = 3
EXAMPLE_CHARACTERS = 240
# The dropped documents of a large corpus are not all read: only the first ones of the first files.
_FILES, _DOCUMENTS_A_FILE, _READ_CHARACTERS = 50, 50, 4000
# Whatever could be a number of a person, and whatever could be an address.
_NUMBER, _ADDRESS = re.compile(r"\+?\d(?:[\s()./\-]*\d){5,}"), re.compile(r"\S*@\S*")


class FunnelRow(NamedTuple):
    """A rule: how many documents and bytes it dropped, how many were left, `share` [0, 1] of all documents.

    `examples` are beginnings of dropped documents.
    """

    name: str
    text: str
    dropped: int
    documents: int
    size: int
    share: float
    examples: list[str]


def funnel(corpus: Mapping[str, Any], documents_dir: str) -> list[FunnelRow]:
    """A row for what was read, one for each rule that dropped something, in their order; none without a record.

    `corpus` is the content of corpus.json. `documents_dir` has dropped documents with `corpus.keep_dropped`.
    """
    fates = corpus.get("record", {}).get(ALL, {})
    if not fates:
        return []
    read = total(fates)
    documents, size = read["documents"], read["bytes"]
    rows = [FunnelRow("read", "documents found in the text", 0, documents, size, 1.0, [])]
    examples = _examples(documents_dir)
    for name, text in {**RULES, **FATES}.items():
        if name in fates and name != KEPT:
            documents -= fates[name]["documents"]
            size -= fates[name]["bytes"]
            share = documents / max(read["documents"], 1)
            rows.append(FunnelRow(name, text, fates[name]["documents"], documents, size, share, examples.get(name, [])))
    return rows


def _examples(documents_dir: str) -> dict[str, list[str]]:
    """Beginnings of dropped documents, by rule, without personal data, whatever the settings are."""
    examples: dict[str, list[str]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(documents_dir), DROPPED, "*.jsonl")))[:_FILES]:
        with open(path, encoding="utf-8") as file:
            for line in itertools.islice(file, _DOCUMENTS_A_FILE):
                dropped = json.loads(line)
                of_rule = examples.setdefault(dropped["rule"], [])
                if len(of_rule) < EXAMPLES:
                    of_rule.append(shown(dropped["text"]))
    return examples


_PERSONAL = PersonalData(PersonalDataSettings(email=True, ip=True, card=True))


def shown(text: str) -> str:
    """The beginning of a text, with addresses and long numbers replaced before it is cut."""
    lines, _ = _PERSONAL(text[:_READ_CHARACTERS].split("\n"), Counter())
    words = " ".join(" ".join(lines).split())
    words = _NUMBER.sub("[number]", _ADDRESS.sub("[address]", words))
    return words if len(words) <= EXAMPLE_CHARACTERS else words[:EXAMPLE_CHARACTERS].rsplit(" ", 1)[0] + " …"
