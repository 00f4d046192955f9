"""Writes dropped documents as JSON lines, in the folder DROPPED of the documents.

    {"rule": "too_short", "source": "text/a.txt", "text": "one line\\nanother line"}

One file for each unit of work (documents that a filter dropped, as they were read) and for each shard (duplicates), if
any was dropped. Its documents are in the order of reading, or of their ids: the bytes do not depend on the workers.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable
from typing import BinaryIO

from components.corpus_gen.filters.personal_data import PersonalData
from components.corpus_gen.settings import CorpusSettings
from components.io.shards import whole_file

DROPPED = "dropped"


class DroppedFile:
    """A file of dropped documents, which is made with the first of them, and exists once it is closed.

    Args:
        path: path of the file; None: nothing is written.
        temporary_dir: folder of the unfinished file.
        personal: replaces personal data, which a document that another filter has dropped still has.
    """

    def __init__(self, path: str | None, temporary_dir: str, personal: Callable | None = None):
        self._path, self._temporary_dir, self._open = path, temporary_dir, contextlib.ExitStack()
        self._personal = personal
        self._file: BinaryIO | None = None

    def add(self, rule: str, source: str, text: str) -> None:
        """Write a document."""
        if self._path is None:
            return
        if self._file is None:
            self._file = self._open.enter_context(whole_file(self._path, self._temporary_dir))
        if self._personal is not None:
            text = "\n".join(self._personal(text.split("\n"), Counter())[0])
        line = json.dumps({"rule": rule, "source": source, "text": text}, ensure_ascii=False)
        # A byte of a path that is not UTF-8 becomes JSON's escape of a lone surrogate.
        self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")

    def close(self) -> None:
        """Finish the file, if there is one."""
        self._open.close()


def dropped_file(settings: CorpusSettings, documents_dir: str, name: str, temporary_dir: str) -> DroppedFile:
    """The file NAME.jsonl of a folder of documents, if the settings ask for it."""
    if not settings.keep_dropped:
        return DroppedFile(None, temporary_dir)
    personal = PersonalData(settings.personal_data)
    return DroppedFile(f"{documents_dir}/{DROPPED}/{name}.jsonl", temporary_dir, personal if personal.on else None)
