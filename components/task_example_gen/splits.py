"""Selects rows to hold out, and samples of rows."""

import hashlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow
from components.task_example_gen.readers.records import LocatedRow

T = TypeVar("T")


def hold_out(
    rows: Sequence[tuple[str, LocatedRow]], eval_fraction: float, seed: int, by_text: bool = False
) -> tuple[list[TaskRow], list[TaskRow]]:
    """Split (path, row) pairs into (training rows, eval rows), each in their order.

    Groups are not split: articles, documents, videos; else, with `by_text`, rows of one `text`; else rows with the same
    inputs. They are held out in the order of a seeded hash until they have `eval_fraction` of the rows; at least one
    is held out, and one is not. InputError: there is only one group.
    """
    groups: dict[bytes, list[int]] = {}
    for index, (path, located) in enumerate(rows):
        groups.setdefault(_hash(path, located, seed, by_text), []).append(index)
    if len(groups) < 2:
        raise InputError(
            f"{rows[0][0]}: all rows are one group (article, document, video, or the same text), which cannot be "
            "split; give --eval FILE"
        )
    held_out: set[int] = set()
    for digest in sorted(groups)[:-1]:
        held_out.update(groups[digest])
        if len(held_out) >= eval_fraction * len(rows):
            break
    return (
        [located.row for index, (_, located) in enumerate(rows) if index not in held_out],
        [located.row for index, (_, located) in enumerate(rows) if index in held_out],
    )


def _hash(path: str, located: LocatedRow, seed: int, by_text: bool) -> bytes:
    key: Any = located.row.inputs["text"] if by_text else sorted(located.row.inputs.items())
    if located.group:
        # Without the folder of the file: the split must not depend on where the data are.
        key = [path.rpartition("/")[2], located.group]
    return hashlib.sha256(json.dumps([seed, key]).encode()).digest()


def sample(rows: Sequence[T], count: int, seed: int) -> list[T]:
    """Random sample of `count` rows, in their order; all rows if `count` is 0 or at least their number."""
    if not count or count >= len(rows):
        return list(rows)
    return [rows[index] for index in sorted(random.Random(seed).sample(range(len(rows)), count))]


def sample_by_text(rows: Sequence[TaskRow], count: int, seed: int) -> list[TaskRow]:
    """Likewise, of at most `count` rows, at least one group: all rows of a `text`, or none."""
    sizes = Counter(row.inputs["text"] for row in rows)
    texts = random.Random(seed).sample(list(sizes), len(sizes))
    totals = itertools.accumulate(sizes[text] for text in texts)
    chosen = {text for text, total in zip(texts, totals, strict=True) if not count or total <= count} or {texts[0]}
    return [row for row in rows if row.inputs["text"] in chosen]
