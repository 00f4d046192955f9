"""Which evaluation sets the corpus of a pushed model was checked against (`corpus.decontaminate`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_keras.saved_model.saved_model_files import EXTRA_FOLDER

# {"name", "sha256", "unread"} of each set, with the number of rows that could not be read; None: unknown.
Checked = list[dict[str, Any]] | None


def checked_sets(table: str, init: str | None) -> Checked:
    """The sets that neither the corpus of a run nor that of its initial model has texts of; none without a `table`."""
    if not table:
        return []
    from components.corpus_gen.filters.leaks import LeakTable

    sets = [{name: checked[name] for name in ("name", "sha256", "unread")} for checked in LeakTable.read(table).sets]
    if init is None:
        return sets
    before = _recorded(init)
    if before is None:
        return None
    earlier = {checked["sha256"] for checked in before}
    return [checked for checked in sets if checked["sha256"] in earlier]


def leak_warning(init: str, splits: Mapping[str, Sequence[str]]) -> str:
    """A line on the held-out files whose texts the corpus of an initial model may have; "" if there is nothing to say.

    Nothing is said of models that this project did not push: their corpora have no record. Without a file of eval rows,
    some of the training rows are held out.
    """
    from components.pusher.lineage import LINEAGE_FILE
    from components.task_example_gen.evaluation_sets import content_sha256
    from components.task_example_gen.split_files import EVAL, TRAIN

    if not os.path.exists(os.path.join(init, EXTRA_FOLDER, LINEAGE_FILE)):
        return ""
    checked = _recorded(init)
    unread = {entry["sha256"]: entry["unread"] for entry in checked or ()}
    paths = [path for split in splits if split != TRAIN or EVAL not in splits for path in splits[split]]
    rows = {path: unread.get(content_sha256(path)) for path in paths}
    unchecked = ", ".join(
        path if count is None else f"{count:,} unreadable row(s) of {path}"
        for path, count in rows.items()
        if count != 0
    )
    if not unchecked:
        return ""
    if checked is None:
        return f"--init {init}: unknown whether its corpus has texts of {unchecked} (docs/corpus.md)"
    return (
        f"--init {init}: its corpus was not checked for texts of {unchecked}, so scores may be too high; "
        "pre-train with --set corpus.decontaminate=FILES (docs/corpus.md)"
    )


def _recorded(model: str) -> Checked:
    """The record in a pushed model; None without one."""
    from components.io.shards import read_json
    from components.pusher.lineage import LINEAGE_FILE

    try:
        return read_json(os.path.join(model, EXTRA_FOLDER, LINEAGE_FILE))["decontaminated"]
    except (OSError, ValueError, KeyError, TypeError):  # not pushed, or damaged
        return None
