"""IMDb's reviews (`aclImdb`), one file each, in a folder.

    aclImdb/train/pos/127_10.txt   It is a classic.<br /><br />See it!

is TaskRow("train/pos/127_10", {"text": "It is a classic. See it!"}, "pos"): the label is the folder; the rating is part
of the name. HTML line breaks become one blank: they are not words of the review, and would take four tokens each. Files
in `train/unsup`, which have no label, lists of URLs and bags of words are ignored. Any data with folders `pos` and
`neg` can be read (e.g. the polarity data of Pang and Lee).
"""

import re
from collections.abc import Iterator

from bert_keras.tasks.rows import TaskRow
from components.io.shards import open_file
from components.task_example_gen.readers.records import ReadRows, decoded, rows_of
from components.task_example_gen.task_files import files_below, input_errors

LABELS = ("neg", "pos")
_BREAKS = re.compile(r"\s*(?:<br\s*/?>\s*)+", re.IGNORECASE)


def read_imdb(path: str) -> ReadRows:
    """Reviews in a folder, sorted by label, then id, independent of the location."""
    reviews = sorted((_key(name), name, content) for name, content in _files(path))
    return rows_of(((name, (name, content)) for _, name, content in reviews), _parse)


def is_review(name: str) -> bool:
    """Return whether a file of this name is a labelled review."""
    return name.endswith(".txt") and name.rpartition("/")[0].rpartition("/")[2] in LABELS


def _files(path: str) -> Iterator[tuple[str, bytes]]:
    folder = path.rstrip("/")
    for file in files_below(folder):
        # Including the folder's own name, which may be `train` or `pos`.
        name = file.path[len(folder) - len(folder.rpartition("/")[2]) :]
        if is_review(name):
            with input_errors(file.path), open_file(file.path) as content:
                yield name, content.read()


def _key(name: str) -> tuple[str, int, str]:
    *_, label, file = name.split("/")
    digits = re.match(r"\d*", file)
    return label, int(digits[0]) if digits and digits[0] else 0, name


def _parse(_: int, review: tuple[str, bytes]) -> TaskRow:
    name, content = review
    parts = name.removesuffix(".txt").split("/")
    text = _BREAKS.sub(" ", decoded(content).removeprefix("\ufeff")).strip()
    return TaskRow("/".join(parts[-3:]), {"text": text}, parts[-2])
