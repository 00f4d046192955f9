"""What every rule left of a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from components.corpus_gen.filters.chain import RULES
from components.corpus_gen.record.card import total
from components.corpus_gen.record.tally import ALL, FATES, KEPT


class FunnelRow(NamedTuple):
    """A rule: the documents that it dropped, documents and bytes that were left, and their `share` [0, 1] of all."""

    name: str
    dropped: int
    documents: int
    size: int
    share: float


def funnel(corpus: Mapping[str, Any]) -> list[FunnelRow]:
    """A row for what was read, and one for each rule that dropped something, in their order.

    `corpus` is the content of corpus.json.
    """
    fates = corpus["record"][ALL]
    read = total(fates)
    documents, size = read["documents"], read["bytes"]
    rows = [FunnelRow("read", 0, documents, size, 1.0)]
    for name in (*RULES, *FATES):
        if name in fates and name != KEPT:
            documents -= fates[name]["documents"]
            size -= fates[name]["bytes"]
            share = documents / max(read["documents"], 1)
            rows.append(FunnelRow(name, fates[name]["documents"], documents, size, share))
    return rows
